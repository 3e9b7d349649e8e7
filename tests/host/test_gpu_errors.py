"""What errors of the libraries mean about the GPU: it is full, or its driver is older than they need."""

from __future__ import annotations

import pytest
from support.gpus.fake_nvidia import FakeDriver, FakeNvml, install

from shootout.backends.devices.cuda import explain_error


class OutOfMemoryError(RuntimeError):
    """As torch's, whose message says it too."""


TORCH_FULL = (
    "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 139.72 GiB of which 5.12 GiB is"
    " free. Process 8 has 134.59 GiB memory in use. Of the allocated memory 120.00 GiB is allocated by PyTorch"
)
ORT_FULL = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal("
    "size_t, bool) Failed to allocate memory for requested buffer of size 1073741824"
)
ORT_LIMIT = "BFCArena::AllocateRawInternal Available memory of 536870912 is smaller than requested bytes of 1073741824"
TRT_FULL = "no execution context: Requested amount of GPU memory (28579323904 bytes) could not be allocated"


@pytest.mark.parametrize(
    "said",
    [
        TORCH_FULL,
        "RESOURCE_EXHAUSTED: Out of memory while trying to allocate 17179869184 bytes.",
        ORT_FULL,
        ORT_LIMIT,
        TRT_FULL,
        "cudaMalloc failed: out of memory",
        "CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    ],
)
def test_a_full_device_says_what_there_is(monkeypatch: pytest.MonkeyPatch, said: str):
    install(monkeypatch, FakeDriver(), FakeNvml())
    assert explain_error(RuntimeError(said)) == "needs more device memory than there is, has 140.0 GiB free"
    install(monkeypatch, FakeDriver(), None)
    assert explain_error(RuntimeError(said)) == "needs more device memory than there is"


def test_torch_s_own_kind_of_error_is_known_without_words(monkeypatch: pytest.MonkeyPatch):
    install(monkeypatch, FakeDriver(), None)
    assert explain_error(OutOfMemoryError("")) == "needs more device memory than there is"


@pytest.mark.parametrize(
    "said",
    [
        "DefaultCPUAllocator: can't allocate memory: you tried to allocate 80000000000 bytes. out of memory",
        "cudaHostAlloc failed: out of memory",
        "Unable to allocate 7.45 GiB for an array with shape (1000000000,)",
        "an illegal memory access was encountered",
        "mat1 and mat2 shapes cannot be multiplied",
    ],
)
def test_other_errors_keep_their_own_words(monkeypatch: pytest.MonkeyPatch, said: str):
    install(monkeypatch, FakeDriver(), FakeNvml())
    assert explain_error(RuntimeError(said)) is None


OLD = [
    "The NVIDIA driver on your system is too old (found version 12040). Please update your GPU driver",
    "cudaGetDeviceCount failed: CUDA driver version is insufficient for CUDA runtime version",
    "CUDA failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=0",
    "createInferRuntime: Error Code 6: API Usage Error (CUDA initialization failure with error: 35.)",
]


@pytest.mark.parametrize("said", OLD)
def test_a_driver_older_than_the_library_names_both_versions_and_the_fix(monkeypatch: pytest.MonkeyPatch, said: str):
    install(monkeypatch, FakeDriver(version=12_040), None)
    assert explain_error(RuntimeError(said)) == (
        "the NVIDIA driver knows CUDA 12.4 at most, the library needs a newer one: update the NVIDIA driver"
        " (nvidia.com/drivers), or install the library's build for CUDA 12"
    )
