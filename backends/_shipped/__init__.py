"""A shipped folder as an arm (`bundle:DIR`): its own `load.py` runs it, as whoever mounts it would."""
