"""The backends that ship, by name: where the facts of each are found. Reading them imports no framework."""

from __future__ import annotations

TABLE = {
    "numpy": "shootout.backends._numpy:FACTS",
    "torch-eager": "shootout.backends._torch:EAGER",
    "torch-compile": "shootout.backends._torch:COMPILE",
    "torchscript": "shootout.backends._torch:SCRIPT",
    "jax-jit": "shootout.backends._jax:FACTS",
    "onnxruntime": "shootout.backends._onnxruntime:FACTS",
    "openvino": "shootout.backends._openvino:FACTS",
    "litert": "shootout.backends._litert:FACTS",
    "executorch": "shootout.backends._executorch:FACTS",
    "ncnn": "shootout.backends._ncnn:FACTS",
    "iree": "shootout.backends._iree:FACTS",
    "tensorrt": "shootout.backends._tensorrt:FACTS",
    "sklearn": "shootout.backends._trees:SKLEARN",
    "lightgbm": "shootout.backends._trees:LIGHTGBM",
    "xgboost": "shootout.backends._trees:XGBOOST",
}
HIDDEN = {"spin": "shootout.backends._spin:FACTS", "joint": "shootout.backends._joint:FACTS"}
"""Instruments of the harness, which no list shows."""
FOLDER_OPENER = "shootout.backends.shipped:open_once"
"""The class that opens such a folder."""
BASELINE, BASELINE_OF_FILES = "torch-eager", "onnxruntime"
"""Targets that others are compared with unless the user names one; the second where it can run a user's ONNX file, or
where only the fastest is looked for: it loads in a fraction of a second.
"""
FOLDER_RUNNER = "shootout.backends.shipped:ShippedRunner"
"""The runner of targets that are shipped folders (`shipped:DIR`)."""
SHARED_CODE = ("shootout.backends", "shootout.quantize")
"""Packages whose own files decide what every adapter here builds, beside those of its family."""
PROGRAM_SHARED = ("torch", "torch._dynamo")
"""Modules that a build begins with if it takes a torch program: `torch.export` imports Dynamo at the first one."""
USUAL = {
    "cpu": ("onnxruntime", "torch-compile+aoti"),
    "cuda": ("tensorrt", "tensorrt-rtx", "onnxruntime"),
}
"""The backends that an expert would take without measuring, plain and in FP32, by the device of what is shipped."""
ERRORS = "shootout.backends.optional:explain_error"
"""The function that finds what an error of a library means by an adapter's hints; None if it is a failure."""
OTHER_PACKAGES = (
    "onnxruntime-gpu",
    *("nvidia-cuda-runtime", "nvidia-cuda-runtime-cu12", "nvidia-cublas", "nvidia-cublas-cu12", "triton"),
    *("nvidia-cudnn-cu12", "nvidia-cudnn-cu13", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)
"""Distributions that may stand in for one of our requirements, and what our requirements bring for a GPU."""
QUANTIZERS = ("nncf", "torchao")
"""Vendors' packages without which a float target works."""
CHANGING = (
    r"(?!NVIDIA_(REQUIRE_\w+|DRIVER_CAPABILITIES|PRODUCT_NAME))"  # these tell a container's starter what to mount
    r"(?:(OMP|KMP|GOMP|MKL|NPY|OPENBLAS|BLIS|VECLIB|ONEDNN|DNNL|XLA|JAX|PJRT|TORCH\w*|PYTORCH|ORT|OV|CUDA|NVIDIA|MALLOC|QEMU)_\w+"
    r"|LD_PRELOAD|GLIBC_TUNABLES|SHOOTOUT_GPU|VK_(ICD_FILENAMES|(ADD_)?DRIVER_FILES)|MESA_VK_DEVICE_SELECT\w*)"
)
"""Variables that change how the libraries run, and which GPU they find, as a regular expression."""
NEEDED = (
    r"(GOTO|NUMEXPR|ATEN|AOT_INDUCTOR|TRITON|TBB|TF|TFLITE|LITERT|NCNN|OPENVINO|NNCF|TENSORRT|TRT|HF_HUB|TRANSFORMERS"
    r"|CUDNN|CUBLAS|NCCL|NV|VK|MESA|LP|HIP|HSA|ROCM?)_\w+|HF_HOME|TORCHINDUCTOR\w*"
)
"""Other variables that a library may need to work at all, likewise."""
CONVERTER = "converter-"
"""The prefix of a folder of the cache that holds a converter; `KEY_DIGITS` hexadecimal digits follow."""
KEY_DIGITS = 12
RUNTIME_FORMS = "converted"
"""The cache's folder of models in the form that a runtime takes, made once for all precisions."""
EXAMPLES = "numpy, openvino:cpu:int8, 'onnxruntime:cpu:*'"
"""Targets as a command line names them, for its help."""
