"""Round, predict error bounds, write Q/DQ models, and find the layers that a quantizer should leave alone.

In: a model's graph and calibration data. Out: quantized files, and the error that they predict.
May use `exported` and the root.
"""
