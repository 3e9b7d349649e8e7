"""NumPy: one adapter, `numpy`.

There is no `quantize`: NumPy multiplies integers without a BLAS, far slower than floats.
"""
