"""Score a model's outputs against truths: by name, or by a function of the user's own."""
