"""Why the arms come in the order they do: by their times at sizes that tell overhead from work, and by counting."""
