"""PyTorch: the adapters `torch-eager`, `torch-compile` and `torchscript`.

In: a bundle's torch module and its weights. Out: sessions on the CPU and on CUDA, and training steps.
May use `models` (it makes the module), `bundle`, `host` and the root; JAX uses a little of it.
"""
