"""Score a detector by its raw head, as YOLOv8 exports it: (rows, 4 + classes, boxes), with cx cy w h and class scores.

The column `boxes` of the truth has the true boxes of an image, [[x1, y1, x2, y2, class], ...], in pixels of the model's
input: `pandas.DataFrame({"boxes": a_list_for_each_image}).to_parquet("boxes.parquet")`.
Without --truth, the boxes of the model's own FP32 outputs are the true ones.

YOLOv5's head is (rows, boxes, 5 + classes): give `decode` the transpose without row 4, by which the class scores are
multiplied first.
"""

import numpy as np

LEAST_SCORE, SUPPRESSES, MATCHES = 0.25, 0.45, 0.5  # a class score, and two shares of overlap


def decode(head):
    """Return an image's boxes (x1 y1 x2 y2 class), the surest first, of a head (4 + classes, boxes)."""
    scores, classes = head[4:].max(axis=0), head[4:].argmax(axis=0)
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] >= LEAST_SCORE]
    center, half = head[:2, order].T, head[2:4, order].T / 2
    kept = np.zeros((0, 5))
    for box in np.column_stack([center - half, center + half, classes[order]]):
        if not (find_overlaps(box, kept) > SUPPRESSES).any():
            kept = np.vstack([kept, box])
    return kept


def find_overlaps(box, others):
    """Return the intersection over union of a box with others of its class, and 0 with other classes."""
    sides = np.minimum(box[2:4], others[:, 2:4]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides, 0).prod(axis=1)
    areas = (others[:, 2:4] - others[:, :2]).prod(axis=1) + (box[2:4] - box[:2]).prod()
    return common / np.maximum(areas - common, 1e-9) * (others[:, 4] == box[4])


def find_head(outputs):
    """Return the only output of three axes, if it has the shape of a head."""
    found = [one for one in outputs.values() if one.ndim == 3]
    if len(found) != 1 or not 4 < found[0].shape[1] <= found[0].shape[2]:
        shapes = ", ".join(f"{name} {list(one.shape)}" for name, one in outputs.items())
        raise ValueError(f"expected one output (rows, 4 + classes, boxes), with more boxes than classes; got {shapes}")
    return found[0]


def f1(outputs, truth):
    """Return for each image twice the boxes that match a true one, and the boxes of both sides."""
    is_own = "boxes" not in truth  # without --truth: the model's own FP32 outputs
    rows = []
    for head, true in zip(find_head(outputs), find_head(truth) if is_own else truth["boxes"], strict=True):
        boxes, left = decode(head), decode(true) if is_own else np.reshape(true, (-1, 5))
        sizes, hits = len(boxes) + len(left), 0
        for box in boxes:
            overlaps = find_overlaps(box, left)
            if overlaps.max(initial=0) >= MATCHES:
                left, hits = np.delete(left, overlaps.argmax(), axis=0), hits + 1
        rows.append([2 * hits, sizes])
    return np.array(rows, float)


f1.reduce = lambda rows: rows[:, 0].sum() / max(rows[:, 1].sum(), 1)
