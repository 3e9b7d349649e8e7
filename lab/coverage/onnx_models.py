"""The models that the installed `onnx` package carries for its own tests, each with inputs and expected outputs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SETS = ("simple", "pytorch-converted", "pytorch-operator")
NODE = "node"
NODE_CASES = (
    r"(attention_4d|attention_3d_gqa|attention_4d_causal|attention_4d_softcap)(_expanded)?",
    r"(layer_normalization_4d_axis1|group_normalization_example|rms_normalization_4d_axis1)(_expanded)?",
    r"(gelu_default_1|gelu_tanh_1|softmax_axis_1|logsoftmax_axis_1|swish|mish)(_expanded)?",
    r"lstm_defaults|lstm_with_peepholes|gru_defaults|gru_seq_length|simple_rnn_defaults",
    r"conv_with_strides_padding|convtranspose_group_2|convinteger_with_padding|qlinearconv|deform_conv_with_mask_bias",
    r"gemm_all_attributes|matmul_3d|matmulinteger|qlinearmatmul_2D_uint8_float32|einsum_batch_matmul",
    r"dynamicquantizelinear(_expanded)?|quantizelinear_axis|dequantizelinear_axis",
    r"resize_upsample_sizes_nearest|resize_upsample_scales_cubic|gridsample_bilinear|roialign_aligned_true",
    r"top_k|gather_elements_0|scatter_elements_with_axis|nonmaxsuppression_limit_output_size|cumsum_2d_axis_0",
    r"if|loop11|scan9_sum|batchnorm_example|instancenorm_example|lrn|rotary_embedding(_expanded)?",
)
"""Of 1,884 operator cases: recurrent, attention, convolution, quantized, normalisation, control flow; some as the
functions they expand into, which are small graphs of many operators."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One model with its inputs and the outputs that the package expects, one of each per data set."""

    source: str
    name: str
    model: Any
    inputs: tuple[tuple[Any, ...], ...]
    outputs: tuple[tuple[Any, ...], ...]


def stored_cases() -> Iterator[Case]:
    """The three sets of whole models that the package carries as files."""
    import onnx.backend.test
    from onnx import numpy_helper

    def read(files: Sequence[Path], kind: str) -> tuple[Any, ...]:
        wanted = sorted((file for file in files if file.name.startswith(kind)), key=_number)
        tensors = [onnx.TensorProto.FromString(file.read_bytes()) for file in wanted]
        return tuple(numpy_helper.to_array(tensor) if tensor.data_type else None for tensor in tensors)

    data = Path(onnx.backend.test.__file__).parent / "data"
    for source in SETS:
        for folder in sorted(entry for entry in (data / source).iterdir() if entry.is_dir()):
            sets = [list(found.iterdir()) for found in sorted(folder.glob("test_data_set_*"), key=_number)]
            yield Case(
                source=source,
                name=folder.name,
                model=onnx.load(folder / "model.onnx"),
                inputs=tuple(read(files, "input") for files in sets),
                outputs=tuple(read(files, "output") for files in sets),
            )


def node_cases(*, every: bool) -> Iterator[Case]:
    """All operator cases, or the chosen ones; importing them makes the package generate all (seconds)."""
    from onnx.backend.test.case.node import collect_testcases

    wanted = re.compile(f"test_({'|'.join(NODE_CASES)})")
    for case in collect_testcases(None):
        if case.data_sets and (every or wanted.fullmatch(case.name)):
            inputs, outputs = zip(*case.data_sets, strict=True)
            yield Case(
                source=NODE,
                name=case.name,
                model=case.model,
                inputs=tuple(tuple(one) for one in inputs),
                outputs=tuple(tuple(one) for one in outputs),
            )


def _number(path: Path) -> int:
    return int(re.sub(r"\D", "", path.stem) or 0)
