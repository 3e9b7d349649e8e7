"""What `ship` makes of each backend: in a fresh environment with nothing but its runtime, and beside its own arm."""
