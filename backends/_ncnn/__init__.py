"""ncnn, and pnnx that converts for it: one adapter, `ncnn`."""
