"""What Inductor really made of a graph: its kernels, at the moment they are scheduled.

A pass that Inductor itself calls after fusion, with the final list of kernels, for torch.compile and AOTInductor
alike. A product is either a kernel of its own (a library call or a GEMM template) or was decomposed into a generated
loop, where it shows as a multiplication of two tensors that stems from the product; both are counted, by the operands'
dtype.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any
from weakref import WeakSet

from shootout.backends._torch.trace import PRODUCTS, Tally, float32_policy, flops_of, product_precision
from shootout.backends.common import precision_of
from shootout.contract import Device

UUID = "shootout-kernel-recorder-2"
Product = tuple[str, float]
"""Precision and operations."""
CONVERTING = r"^(quantize|dequantize|convert_element_type|clone|copy|permute|view|_to_copy)"
"""Operations that only change a tensor's type or layout."""
ROUNDING = (
    r"^(convert_element_type|clamp|round|mul|div|reciprocal|add|sub|neg|maximum|minimum|full|permute|view|expand)"
)
"""What torchao's quantize is decomposed into; a loop of nothing else that ends in 8 bits is one."""
EIGHT_BITS = ("torch.int8", "torch.uint8")


def kernel_recorder(device: Device) -> tuple[Any, Tally, Counter[str]]:
    """A pass for `_post_fusion_custom_pass`, and what it will have seen.

    The pass carries a fixed uuid, so that Inductor's cache finds with it what was compiled with it.

    Returns:
        The pass; the tally; all kernels by kind ("library", "loop").
    """
    from torch._inductor import custom_graph_pass as passes
    from torch._inductor.virtualized import V

    tally, kernels, policy = Tally(), Counter[str](), float32_policy(device)
    counted = WeakSet[Any]()
    kind: Any = getattr(passes, "CustomSchedulerPass", passes.CustomGraphPass)  # the former is there from 2.13 on

    class Recorder(kind):  # type: ignore[misc]
        def __call__(self, nodes: Any) -> Any:
            if V.graph in counted:  # a C++ wrapper for a GPU may be made in two passes over one graph
                return nodes
            counted.add(V.graph)
            seen: set[Any] = set()
            for node in nodes:
                kernels["library" if node.is_extern() else "loop"] += 1
                _add(tally, node, policy, seen)
            return nodes

        def uuid(self) -> str:
            return UUID

        def __reduce__(self) -> tuple[Any, ...]:
            """To the cache's key, which pickles the configuration, every recorder is the same."""
            return str, (UUID,)

    return Recorder(), tally, kernels


def _add(tally: Tally, node: Any, policy: Mapping[str, str], seen: set[Any]) -> None:
    """One kernel: its products, or itself among the others."""
    parts = [part for part in node.get_nodes() if type(part.node).__name__ != "MultiOutput"]  # a call's result, no call
    products = [product for part in parts for product in _products(part, policy, seen)]
    for precision, flops in products:
        tally.add_product(precision, flops)
    if parts and not products:
        tally.others[precision_of(_dtype(parts[-1].node).removeprefix("torch."))] += 1
        tally.conversions += _converts(parts)


def _products(part: Any, policy: Mapping[str, str], seen: set[Any]) -> Iterator[Product]:
    """Each product that this scheduled operation computes; a loop's multiplications only once."""
    if part.is_extern() or part.is_template():
        name, operands = _kernel_name(part.node), [one for one in part.node.inputs if hasattr(one, "get_dtype")]
        if name and operands:
            flops = flops_of(name, _shapes(name, operands), *_results(part.node))
            yield product_precision(name, str(operands[0].get_dtype()), policy), flops
        return
    for origin in part.node.get_origins():
        operands = [arg for arg in origin.args if hasattr(arg, "meta")]
        name = _product_in(str(origin.meta.get("original_aten", "")))
        if name and origin not in seen and "mul" in _name_of(origin) and len(operands) > 1:
            seen.add(origin)
            dtype = str(_stored(operands[0]).meta["val"].dtype)
            yield product_precision(name, dtype, policy), 2.0 * math.prod(origin.meta["val"].shape)


def _converts(parts: list[Any]) -> bool:
    """Whether a kernel does nothing but change types and layouts."""
    if any(part.is_extern() or part.is_template() for part in parts):
        return False
    names = [_name_of(origin) for part in parts for origin in part.node.get_origins()]
    eight_bits = _dtype(parts[-1].node) in EIGHT_BITS
    return all(re.search(CONVERTING, name) or (eight_bits and re.search(ROUNDING, name)) for name in names)


def _sizes(node: Any) -> list[int]:
    return [int(size) for size in node.get_size()]


def _shapes(name: str, operands: list[Any]) -> list[list[int]]:
    """Shapes of the operands; oneDNN's `qlinear` and `qconv` have scales and zero points among them."""
    shapes = [_sizes(one) for one in operands]
    return [shape for shape in shapes if len(shape) > 1] if name.startswith("q") else shapes


def _dtype(node: Any) -> str:
    """The result's dtype; several results' is that of the first operand."""
    several = type(node.layout).__name__ == "MultiOutputLayout"
    return str((node.inputs[0] if several else node).get_dtype())


def _results(node: Any) -> list[list[int] | None]:
    """The results' shapes: a kernel that has several doesn't show them, but its origins do; None for one left out."""
    if type(node.layout).__name__ != "MultiOutputLayout":
        return [_sizes(node)]
    made = next(one.meta["val"] for one in node.get_origins() if _product_in(_qualified(one)))
    results = made if isinstance(made, tuple | list) else (made,)
    return [None if one is None else list(one.shape) for one in results]


def _name_of(origin: Any) -> str:
    """An ATen operation's name; "" for what Inductor's own rewriting put into the graph."""
    return str(getattr(origin.target, "__name__", ""))


def _stored(operand: Any) -> Any:
    """The tensor as it is stored: a loop widens bfloat16 operands before it multiplies, as a bfloat16 GEMM does."""
    while re.search("convert_element_type|squeeze|view|permute|expand", str(operand.target)):
        operand = operand.args[0]
    return operand


def _kernel_name(node: Any) -> str:
    """The ATen product behind a library call or a template; "" when it is something else (a copy, a pooling)."""
    called = getattr(node, "op_overload", None)
    names = [str(called)] if called else [_qualified(origin) for origin in node.get_origins()]
    return next(filter(None, map(_product_in, names)), "")


def _qualified(origin: Any) -> str:
    """`aten.mm.default`; "" for what Inductor's own rewriting put there: its text names all that it was made of."""
    return str(origin.target) if _name_of(origin) else ""


def _product_in(name: str) -> str:
    """The part of a qualified name such as `mkldnn._linear_pointwise.default` that means a product; "" if none does."""
    return next((part for part in name.split(".") if re.search(PRODUCTS, part)), "")
