"""PyTorch: the adapters `torch-eager`, `torch-compile` and `torchscript`.

In: an exported model's torch module and its weights. Out: sessions on the CPU and on CUDA, and training steps.
"""
