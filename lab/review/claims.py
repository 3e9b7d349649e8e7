"""What a review of all adapters said of each case at commit 809f14f: one thread of a busy machine with two cores."""

from __future__ import annotations

from collections.abc import Mapping

TORCH_ORDER = {
    128: {1: 0.98, 2: 1.94, 4: 1.86, 8: 1.58, 16: 1.40, 32: 1.22, 64: 1.04, 128: 1.01},
    512: {1: 1.22, 2: 2.95, 4: 3.33, 8: 2.15, 16: 1.58, 32: 1.36, 64: 1.05, 128: 1.18},
}
"""By width and batch, JAX's time with weights (out, in) ÷ laid out once; 16 layers."""
CLAIMS: Mapping[tuple[str, str], float] = {
    **{
        (f"JAX, 16 layers of {width}, batch {batch}", "(in, out)"): ratio
        for width, batches in TORCH_ORDER.items()
        for batch, ratio in batches.items()
    },
    ("NumPy, 128 layers of 128, batch 1", "(in, out), listed"): 2.02 / 1.58,
    ("ONNX Runtime, input of 512 B", "bound as it is"): 3.4 / 7.8,
    ("ONNX Runtime, input of 512 B", "run()"): 3.4 / 6.7,
    ("ONNX Runtime, input of 600 kB", "bound as it is"): 43 / 12.9,
    ("ONNX Runtime, input of 600 kB", "run()"): 43 / 13.6,
    ("ONNX Runtime, input of 19 MB", "bound as it is"): 1120 / 335,
    ("ONNX Runtime, input of 19 MB", "run()"): 1120 / 345,
    ("OpenVINO, input of 512 B", "set as the tensor"): 9.9 / 17.6,
    ("OpenVINO, input of 600 kB", "set as the tensor"): 36 / 16,
    ("OpenVINO, input of 19 MB", "set as the tensor"): 2530 / 851,
    ("inference mode, net of two layers of 100, eager", "held around the loop"): 1.14,
    ("torch.compile, BF16, 4 layers of 512, batch 8", "freezing"): 191 / 139,
    ("torch.compile, FP32, 4 layers of 512, batch 8", "freezing"): 1.0,
    ("torch.compile, FP32, digits CNN, batch 8", "freezing"): 1576 / 1401,
    ("torch.compile, BF16, 4 layers of 512, batch 8", "max_autotune alone"): 1.0,
    ("torch.compile, FP32, 4 layers of 512, batch 8", "max_autotune alone"): 1.0,
    ("torch.compile, FP32, digits CNN, batch 8", "max_autotune alone"): 1.0,
    ("torch.compile, FP32, 64 layers of 128, batch 1", "guards skipped"): 216 / 198,
}
"""By case and way, the time of the case's first way ÷ this one's. The review doesn't name its convolutional net;
NumPy's figure is its arm's time ÷ ONNX Runtime's over the same of two plain loops."""
