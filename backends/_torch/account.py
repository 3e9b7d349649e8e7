"""Account of what torch really computes, by precision: operations it dispatches, or kernels Inductor schedules.

Without a compiler every ATen operation is seen in one traced call. Its operands' dtype tells, and torch's own flags,
since a float32 product may still be rounded to TF32 or bfloat16 on the way in.

Of what Inductor compiles, a pass that it calls itself after fusion gets the final list of kernels, for torch.compile
and AOTInductor alike. A product is then either a kernel of its own (a library call or a GEMM template), or it was
decomposed into a generated loop. There it shows as a multiplication of two tensors that stems from the product.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from shootout.backends.common import Tally, precision_of
from shootout.core.contract import Device, Precision
from shootout.models.onnx.layers import COMPUTE_OPS

if TYPE_CHECKING:
    import torch

INT4_OPS = r"int4\w*mm"
"""Products whose weights hold two INT4 in a byte, and whose activations are float: no dtype shows it."""
PRODUCTS = rf"{COMPUTE_OPS}|{INT4_OPS}|linear_pointwise|conv_pointwise"
CONVERSIONS = r"^(_to_copy|clone|copy_|contiguous|_?(de)?quantize.*)$"
"""Operations that only change a tensor's type or layout."""
UUID = "shootout-kernel-recorder-2"
CONVERTING = r"^(quantize|dequantize|convert_element_type|clone|copy|permute|view|_to_copy)"
"""Operations that only change a tensor's type or layout."""
ROUNDING = (
    r"^(convert_element_type|clamp|round|mul|div|reciprocal|add|sub|neg|maximum|minimum|full|permute|view|expand)"
)
"""Operations that torchao's quantize is decomposed into; a loop of nothing else that ends in 8 bits is one."""
EIGHT_BITS = ("torch.int8", "torch.uint8", "torch.float8_e4m3fn")


def float32_flags(device: Device) -> Mapping[str, Any]:
    """Return torch's holders of `fp32_precision` by kind of operation: "ieee", "tf32", "bf16", or "none" (unset)."""
    import torch

    backends: Any = torch.backends
    if device is Device.CUDA:
        return {"conv": backends.cudnn.conv, "rnn": backends.cudnn.rnn, "matmul": backends.cuda.matmul}
    return {"conv": backends.mkldnn.conv, "rnn": backends.mkldnn.rnn, "matmul": backends.mkldnn.matmul}


def count_operations(module: Callable[..., Any], staged: list[torch.Tensor], device: Device) -> Tally:
    """Count what torch dispatches in one call, without views, which compute nothing.

    It is traced under `no_grad`: inference mode hides what composite operations are made of.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    tally, policy = Tally(), float32_policy(device)

    class Trace(TorchDispatchMode):  # type: ignore[no-untyped-call]
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            """Return False: wrapping the mode for torch.compile would import all of it, 0.8 s and 800 modules."""
            return False

        supports_higher_order_operators = True
        """Torchao multiplies integers on a GPU by one, `out_dtype`."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if isinstance(func, torch._ops.HigherOrderOperator):  # seen by the operations that it is made of
                with self:
                    return func.py_kernels[torch._C.DispatchKey.CompositeExplicitAutograd](*args, **(kwargs or {}))
            result = func(*args, **(kwargs or {}))
            operands = [arg for arg in args if isinstance(arg, torch.Tensor)]
            if operands and not func.is_view:
                _add_operation(tally, func.overloadpacket.__name__, operands, policy)
            return result

    with torch.no_grad(), Trace():  # type: ignore[no-untyped-call]
        module(*staged)
    return tally


def _add_operation(tally: Tally, name: str, operands: list[torch.Tensor], policy: Mapping[str, str]) -> None:
    dtype = str(operands[0].dtype)
    if re.search(PRODUCTS, name):
        tally.products[product_precision(name, dtype, policy)] += 1
        return
    converts = re.search(CONVERSIONS, name) is not None
    tally.add_other(precision_of(dtype.removeprefix("torch.")), converts=converts)


def kernel_recorder(device: Device) -> tuple[Any, Tally, Counter[str]]:
    """Make a pass for `_post_fusion_custom_pass`, and the counts that it fills.

    The pass carries a fixed uuid, so that Inductor's cache finds with it what was compiled with it.

    Returns:
        The pass; the tally; all kernels by kind ("library", "loop").
    """
    from torch._inductor import custom_graph_pass as passes
    from torch._inductor.virtualized import V

    tally, kernels, policy = Tally(), Counter[str](), float32_policy(device)
    counted = WeakSet[Any]()
    kind: Any = getattr(passes, "CustomSchedulerPass", passes.CustomGraphPass)  # the former is there from 2.13 on

    class KernelRecorder(kind):  # type: ignore[misc]
        def __call__(self, nodes: Any) -> Any:
            if V.graph in counted:  # a C++ wrapper for a GPU may be made in two passes over one graph
                return nodes
            counted.add(V.graph)
            seen: set[Any] = set()
            for node in nodes:
                kernels["library" if node.is_extern() else "loop"] += 1
                _add_kernel(tally, node, policy, seen)
            return nodes

        def uuid(self) -> str:
            return UUID

        def __reduce__(self) -> tuple[Any, ...]:
            """Look the same for every recorder to the cache's key, which pickles the configuration."""
            return str, (UUID,)

    return KernelRecorder(), tally, kernels


def _add_kernel(tally: Tally, node: Any, policy: Mapping[str, str], seen: set[Any]) -> None:
    """Count a kernel's products, or the kernel itself among the others."""
    parts = [part for part in node.get_nodes() if type(part.node).__name__ != "MultiOutput"]  # a call's result, no call
    products = [product for part in parts for product in _find_products(part, policy, seen)]
    tally.products.update(products)
    if parts and not products:
        dtype = _result_dtype(parts[-1].node).removeprefix("torch.")
        tally.add_other(precision_of(dtype), converts=_only_converts(parts))


def _find_products(part: Any, policy: Mapping[str, str], seen: set[Any]) -> Iterator[str]:
    """Yield the precision of each product that an operation computes; a loop's multiplications only once."""
    if part.is_extern() or part.is_template():
        name, operands = _kernel_name(part.node), [one for one in part.node.inputs if hasattr(one, "get_dtype")]
        if name and operands:
            yield product_precision(name, str(operands[0].get_dtype()), policy)
        return
    for origin in part.node.get_origins():
        operands = [arg for arg in origin.args if hasattr(arg, "meta")]
        name = _product_in(str(origin.meta.get("original_aten", "")))
        if name and origin not in seen and "mul" in _name_of(origin) and len(operands) > 1:
            seen.add(origin)
            dtypes = [str(_stored_operand(one).meta["val"].dtype) for one in operands[:2]]
            wide = next((one for one in dtypes if one not in EIGHT_BITS), dtypes[0])  # one in 8 bits alone is widened
            yield product_precision(name, wide, policy)


def _only_converts(parts: list[Any]) -> bool:
    """Return whether a kernel does nothing but change types and layouts."""
    if any(part.is_extern() or part.is_template() for part in parts):
        return False
    names = [_name_of(origin) for part in parts for origin in part.node.get_origins()]
    eight_bits = _result_dtype(parts[-1].node) in EIGHT_BITS
    return all(re.search(CONVERTING, name) or (eight_bits and re.search(ROUNDING, name)) for name in names)


def _result_dtype(node: Any) -> str:
    """Return the result's dtype; for several results, that of the first operand."""
    several = type(node.layout).__name__ == "MultiOutputLayout"
    return str((node.inputs[0] if several else node).get_dtype())


def _name_of(origin: Any) -> str:
    """Return an ATen operation's name; "" for what Inductor's own rewriting put into the graph."""
    return str(getattr(origin.target, "__name__", ""))


def _stored_operand(operand: Any) -> Any:
    """Return the tensor as it is stored: a loop widens bfloat16 operands before it multiplies, as a bfloat16 GEMM
    does.
    """
    while re.search("convert_element_type|squeeze|view|permute|expand", str(operand.target)):
        operand = operand.args[0]
    return operand


def _kernel_name(node: Any) -> str:
    """Return the ATen product behind a library call or a template; "" for anything else (a copy, a pooling)."""
    called = getattr(node, "op_overload", None)
    names = [str(called)] if called else [_qualified_name(origin) for origin in node.get_origins()]
    return next(filter(None, map(_product_in, names)), "")


def _qualified_name(origin: Any) -> str:
    """Return a name such as `aten.mm.default`; "" for what Inductor's rewriting put there, whose text names all its
    origins.
    """
    return str(origin.target) if _name_of(origin) else ""


def _product_in(name: str) -> str:
    """Return the part of a name such as `mkldnn._linear_pointwise.default` that means a product; "" if none does."""
    return next((part for part in name.split(".") if re.search(PRODUCTS, part)), "")


def float32_policy(device: Device) -> Mapping[str, str]:
    """Return what float32 operands are rounded to, by kind of operation, as torch's flags stand now."""
    return {kind: flag.fp32_precision for kind, flag in float32_flags(device).items()}


def product_precision(name: str, dtype: str, policy: Mapping[str, str]) -> str:
    """Return the precision of the product `name` on operands of torch's `dtype`, under the `float32_policy`."""
    if re.search(INT4_OPS, name):
        return Precision.INT4.value
    rounded = policy[_operation_kind(name)]
    lowered = dtype == "torch.float32" and rounded in ("tf32", "bf16")
    return rounded if lowered else precision_of(dtype.removeprefix("torch."))


def _operation_kind(name: str) -> str:
    return "conv" if "conv" in name else "rnn" if re.search("rnn|lstm|gru", name) else "matmul"
