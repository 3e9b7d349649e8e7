"""ncnn, and pnnx that converts for it: one adapter, `ncnn`.

There is no `quantize`: ncnn's quantizer is a pair of programs that no package brings.
"""
