"""Embeddings: pooled as sentence-transformers does it, scored by cosine and by rank, each with a limit of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.exports import bare_exported

from shootout.core.contract import Array, TensorSpec
from shootout.core.errors import UsageError
from shootout.core.exported.calls import NAMES
from shootout.core.exported.model import ExportedModel, ReportRows
from shootout.core.scoring import MetricSpec
from shootout.models.metrics import find_metric, find_range, scoring
from shootout.models.metrics.embeddings import pool

RNG = np.random.default_rng(7)
TOKENS = RNG.standard_normal((4, 6, 3)).astype(np.float32)


def mask(side: str) -> Array:
    lengths = np.array([6, 4, 1, 3])[:, None]
    places = np.arange(6)
    return np.asarray((places < lengths) if side == "right" else (places >= 6 - lengths), np.int64)


def loop(pooling: str, tokens: Array) -> Array:
    """What a text's embedding is, from its own tokens alone."""
    rising = np.arange(1, len(tokens) + 1)[:, None]
    ways = {
        "mean": lambda: tokens.mean(axis=0),
        "cls": lambda: tokens[0],
        "max": lambda: tokens.max(axis=0),
        "last": lambda: tokens[-1],
        "weighted": lambda: (tokens * rising).sum(axis=0) / rising.sum(),
    }
    return np.asarray(ways[pooling]())


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last", "weighted"])
def test_padding_adds_nothing_to_an_embedding(pooling: str, side: str):
    found = pool(pooling, TOKENS, {"attention_mask": mask(side)})
    own = [loop(pooling, one[kept == 1].astype(float)) for one, kept in zip(TOKENS, mask(side), strict=True)]
    np.testing.assert_allclose(found, own, rtol=1e-12)


def test_what_is_pooled_already_stays_and_what_has_other_tokens_is_refused():
    np.testing.assert_array_equal(pool("mean", TOKENS[:, 0], {}), TOKENS[:, 0])
    with pytest.raises(UsageError, match=r"expected an output with the tokens of attention_mask \[4, 6\], received"):
        pool("mean", TOKENS[:, :5], {"attention_mask": mask("right")})
    with pytest.raises(UsageError, match=r"received float32\[4\]; name another output with --scores"):
        pool("cls", TOKENS[:, 0, 0], {})


def test_a_pooling_is_a_parameter_of_the_metric():
    assert find_metric("embedding@mean").given == ("mean",)
    assert [one.name for one in find_metric("embedding@CLS").parts] == ["cosine", "recall@10"]
    assert find_range("cosine@mean") == (-1.0, 1.0)
    with pytest.raises(UsageError, match="POOLING one of mean, cls, max, last, weighted; received 'sum'"):
        find_metric("embedding@sum")


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, ExportedModel, ReportRows, dict[str, Array]]:
    """Outputs of 24 texts, of which a backend gave each text's tokens in twice the size, and one text's anew."""
    ids, lengths = np.zeros((24, 6), np.int64), RNG.integers(2, 7, (24, 1))
    masks = (np.arange(6) < lengths).astype(np.int64)
    own = RNG.standard_normal((24, 6, 16)).astype(np.float32)
    found = 2 * own
    found[masks == 0] = 100  # padding, which no score may see
    found[5] = RNG.standard_normal((6, 16))
    specs = tuple(TensorSpec(name=name, shape=(1, 6), dtype="int64") for name in ("input_ids", "attention_mask"))
    spec = TensorSpec(name="y", shape=(1, 6, 16), dtype="float32")
    exported = bare_exported({}, inputs=specs, outputs=(spec,))
    named = {"input_ids": ids, "attention_mask": masks}
    report = ReportRows(inputs=named, labels=None, rows=np.arange(24), other_rows=np.arange(0))
    folder = tmp_path / "outputs"
    folder.mkdir()
    (folder / NAMES).write_text('["y"]')
    np.savez(folder / "0.npz", arr_0=found[:, None])
    return folder, exported, report, {"y": own}


def test_cosine_and_rank_are_two_scores_of_the_same_rows(rows):
    folder, exported, report, own = rows
    found = scoring.score_rows(MetricSpec(metric="embedding@mean"), folder, exported, report, own)
    ranks = found.other_outputs[0]
    assert (found.name, found.output, ranks.name, ranks.output) == ("cosine", "", "recall@10", "")
    assert found.against == ranks.against == "outputs"
    assert np.delete(found.rows, 5) == pytest.approx(1)
    assert found.rows[5] < 0.9
    assert 0.5 < np.mean(ranks.rows) < 1, "one text of 24 is another one's neighbor no longer"
