"""What Inductor really made of a graph: its kernels, at the moment they are scheduled.

A pass that Inductor itself calls after fusion, with the final list of kernels, for torch.compile and AOTInductor
alike. A product is either a kernel of its own (a library call or a GEMM template) or was decomposed into a generated
loop, where it shows as a multiplication of two tensors that stems from the product; both are counted, by the operands'
dtype.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from shootout.backends.common import COMPUTE_OPS, precision_of
from shootout.backends.torch_trace import float32_flags, kind_of
from shootout.contract import Device

UUID = "shootout-kernel-recorder-1"


def kernel_recorder(device: Device) -> tuple[Any, Counter[str], Counter[str]]:
    """A pass for `_post_fusion_custom_pass`, and what it will have seen.

    The pass carries a fixed uuid, so that Inductor's cache finds with it what was compiled with it.

    Returns:
        The pass; the products by precision; all kernels by kind ("library", "loop").
    """
    from torch._inductor.custom_graph_pass import CustomSchedulerPass

    products: Counter[str] = Counter()
    kernels: Counter[str] = Counter()
    policy = {kind: flag.fp32_precision for kind, flag in float32_flags(device).items()}

    class Recorder(CustomSchedulerPass):
        def __call__(self, nodes: Any) -> Any:
            for node in nodes:
                kernels["library" if node.is_extern() else "loop"] += 1
            seen: set[Any] = set()
            for node in nodes:
                for part in node.get_nodes():
                    products.update(_products(part, policy, seen))
            return nodes

        def uuid(self) -> str:
            return UUID

        def __reduce__(self) -> tuple[Any, ...]:
            """To the cache's key, which pickles the configuration, every recorder is the same."""
            return str, (UUID,)

    return Recorder(), products, kernels


def _products(part: Any, policy: Mapping[str, str], seen: set[Any]) -> Iterator[str]:
    """The precision of each product that this scheduled operation computes; a loop's multiplications only once."""
    if part.is_extern() or part.is_template():
        name, dtype = _kernel_name(part.node), _first_input_dtype(part.node)
        if name and dtype:
            yield _precision(name, dtype, policy)
        return
    for origin in part.node.get_origins():
        operands = [arg for arg in origin.args if hasattr(arg, "meta")]
        name = _product_in(str(origin.meta.get("original_aten", "")))
        if name and origin not in seen and "mul" in str(origin.target) and len(operands) > 1:
            seen.add(origin)
            yield _precision(name, str(_stored(operands[0]).meta["val"].dtype), policy)


def _stored(operand: Any) -> Any:
    """The tensor as it is stored: a loop widens bfloat16 operands before it multiplies, as a bfloat16 GEMM does."""
    while re.search("convert_element_type|squeeze|view|permute|expand", str(operand.target)):
        operand = operand.args[0]
    return operand


def _kernel_name(node: Any) -> str:
    """The ATen product behind a library call or a template; "" when it is something else (a copy, an output view)."""
    names = [str(getattr(node, "op_overload", "")), *(str(origin.target) for origin in node.get_origins())]
    return next(filter(None, map(_product_in, names)), "")


def _product_in(name: str) -> str:
    """The part of a qualified name such as `mkldnn._linear_pointwise.default` that means a product; "" if none does."""
    return next((part for part in name.split(".") if re.search(COMPUTE_OPS, part) or "linear_pointwise" in part), "")


def _first_input_dtype(node: Any) -> str:
    return next((str(one.get_dtype()) for one in node.inputs if hasattr(one, "get_dtype")), "")


def _precision(name: str, dtype: str, policy: Mapping[str, str]) -> str:
    lowered = dtype == "torch.float32" and policy[kind_of(name)] in ("tf32", "bf16")
    return policy[kind_of(name)] if lowered else precision_of(dtype.removeprefix("torch."))
