"""NumPy: one adapter, `numpy`."""
