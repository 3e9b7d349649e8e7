"""PyTorch: the adapters `torch-eager`, `torch-compile` and `torchscript`."""
