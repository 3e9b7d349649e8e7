"""Hold the metrics of a user's own that models with data are scored by, as their user would write them."""

from __future__ import annotations

BOXES = '''
"""The F1 of each scene's boxes (x1, y1, x2, y2, score, class), matched at an overlap of 0.5, the surest first."""

import numpy as np


def boxes(outputs, truth):
    return [match(one[one[:, 4] >= 0.25], right) for one, right in zip(outputs["boxes"], truth)]


def match(found, right):
    if not len(found) or not len(right):
        return float(len(found) == len(right))
    free, hits = [*right], 0
    for box in found[np.argsort(-found[:, 4], kind="stable")]:
        shares = [overlap(box, one) * (box[5] == one[5]) for one in free]
        if max(shares, default=0) >= 0.5:
            hits += 1
            free.pop(int(np.argmax(shares)))
    return 2 * hits / (len(found) + len(right))


def overlap(one, other):
    sides = np.minimum(one[2:4], other[2:4]) - np.maximum(one[:2], other[:2])
    common = np.maximum(sides, 0).prod()
    areas = (one[2] - one[0]) * (one[3] - one[1]) + (other[2] - other[0]) * (other[3] - other[1])
    return common / (areas - common) if common else 0.0
'''

TEXT = '''
"""1 minus the edit distance of the greedily decoded text, per symbol of the longer one; class 0 is the blank."""

from rapidfuzz.distance import Levenshtein


def text(outputs, truth):
    (scores,) = outputs.values()
    return [
        Levenshtein.normalized_similarity(read(one.argmax(axis=1).tolist()), [id_ for id_ in right.tolist() if id_ > 0])
        for one, right in zip(scores, truth["right"])
    ]


def read(best):
    return [id_ for id_, last in zip(best, [0, *best]) if id_ not in (0, last)]
'''

PINBALL = '''
"""The pinball loss of the 90 % quantile."""

from sklearn.metrics import mean_pinball_loss


def pinball(outputs, truth):
    return mean_pinball_loss(truth["right"].T, outputs["high"].T, alpha=0.9, multioutput="raw_values")


pinball.lower_is_better = True
'''
