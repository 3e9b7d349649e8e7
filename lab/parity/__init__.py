"""Compare the harness with a plain loop and the field's own tools: the model takes the same time in all of them."""
