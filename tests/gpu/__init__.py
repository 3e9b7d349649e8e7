"""`make gpu`: everything that only a machine with an NVIDIA GPU can show, in one command (docs/gpu.md)."""
