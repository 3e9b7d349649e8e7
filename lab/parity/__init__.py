"""Whoever measures, the model takes the same time: the harness beside a plain loop and the field's own tools."""
