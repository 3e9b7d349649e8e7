"""A shipped folder as an arm (`shipped:DIR`): its own `load.py` runs it, as whoever mounts it would."""
