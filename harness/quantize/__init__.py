"""Round, predict error bounds, write Q/DQ models, count operations: a library of sources, backends and apps.

In: a model's graph and calibration data. Out: quantized files, and the error that they predict.
"""
