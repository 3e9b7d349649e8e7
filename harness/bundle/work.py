"""What one call of a model takes, whoever runs it: operations, and the bytes that can't be avoided.

Workers read bundles, so this imports nothing; `onnxwork` counts.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """One call of a model at its batch size. All bytes are at four an element, whatever the file stores: what a runtime
    really moves depends on the precision that it runs in.

    Attributes:
        flops: operations of matrix products and convolutions, two for each multiply-add; None where some can't be
            counted (see `uncounted`).
        elementwise_ops: one for each element of every other node that computes (a sine counts as much as a sum); nodes
            that only move or rename data count nothing.
        weight_bytes: the stored weights that a call reads; tables that are read by rows (embeddings) are not among
            them.
        input_bytes: the model's inputs; `output_bytes` likewise.
        activation_bytes: what products read and write beside weights, summed over them: each product by itself, and all
            else fused.
        widest_bytes: the part of it that the largest product has.
        uncounted: operators of products whose operations aren't known.
    """

    flops: float | None
    elementwise_ops: float
    weight_bytes: int
    input_bytes: int
    output_bytes: int
    activation_bytes: int
    widest_bytes: int
    uncounted: tuple[str, ...] = ()
