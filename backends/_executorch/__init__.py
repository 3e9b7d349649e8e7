"""ExecuTorch on the CPU: PyTorch's own road to phones and boards, with XNNPACK for its kernels."""
