"""The metrics by name: against numbers made by hand and scikit-learn's, and what they refuse."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from shootout.core.errors import UsageError
from shootout.models.metrics import METRICS, find_metric
from shootout.models.metrics.metrics import pick_output, pick_truth

NAN = float("nan")
RNG = np.random.default_rng(7)


def score(word: str, output, truth):
    rows = find_metric(word).score(np.asarray(output), truth)
    assert rows.dtype == np.float64
    assert rows.shape == (len(output),)
    return rows


# --- names and parameters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "name"),
    [("top-5", "top-5"), (" MAE ", "mae"), ("recall@10", "recall@10"), ("wer@4", "wer@4"), ("map@0.50", "map@0.5")],
)
def test_parameters_are_read(word: str, name: str):
    assert find_metric(word).name == name


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "acuracy",
            "unknown metric 'acuracy': did you mean 'accuracy'. known: accuracy, auc, cosine, embedding, f1, iou, mae",
        ),
        ("mae@3", "metric 'mae@3': mae takes no parameter"),
        ("top-0", "metric 'top-0': expected top-K, K a whole number from 1; received '0'"),
        *((name, f"unknown metric '{name}'") for name in ("top5", "top-2.5", "top", "boxes")),
        ("recall", "expected recall@K, K a whole number from 1; received ''"),
        ("map@0", "received '0'"),
        ("map@nan", "received 'nan'"),
        ("wer@-1", "received '-1'"),
    ],
)
def test_other_names_and_parameters_are_refused(word: str, message: str):
    with pytest.raises(UsageError, match=message):
        find_metric(word)


def test_there_are_twelve_of_which_three_are_errors():
    forms = "accuracy top-K mae rmse iou cosine[@POOLING] embedding[@POOLING] f1 auc map[@IOU] wer[@SPACE] recall@K"
    assert " ".join(one.form or one.name for one in METRICS.values()) == forms
    assert {name for name, one in METRICS.items() if one.lower_is_better} == {"mae", "rmse", "wer"}


# --- classes ----------------------------------------------------------------------------------------------------------

SCORES = np.array([[0.1, 0.7, 0.2], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5], [0.4, 0.4, 0.2]], np.float32)


@pytest.mark.parametrize(
    "truth",
    [
        np.array([1, 1, 2, 0]),
        np.array([1.0, 1.0, 2.0, 0.0]),
        np.array([[1], [1], [2], [0]], np.uint8),
        [1, 1, 2, 0],
        np.eye(3)[[1, 1, 2, 0]],
        np.eye(3, dtype=bool)[[1, 1, 2, 0]],
        np.log(np.eye(3)[[1, 1, 2, 0]] + 0.1),
    ],
)
def test_accuracy_takes_ids_and_scores(truth):
    assert score("accuracy", SCORES, truth).tolist() == [1, 0, 1, 1]


def test_accuracy_and_top_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    scores, truth = RNG.normal(size=(200, 20)).astype(np.float32), RNG.integers(0, 20, 200)
    assert score("accuracy", scores, truth).mean() == pytest.approx(metrics.accuracy_score(truth, scores.argmax(1)))
    for most in (1, 5, 7):
        theirs = metrics.top_k_accuracy_score(truth, scores, k=most, labels=range(20))
        assert score(f"top-{most}", scores, truth).mean() == pytest.approx(theirs)


def test_accuracy_of_one_score_for_two_classes():
    truth = np.array([1, 0, 1])
    assert score("accuracy", np.array([[0.9], [0.6], [0.4]]), truth).tolist() == [1, 0, 0]
    assert score("accuracy", np.array([2.0, -0.1, 0.4]), truth.astype(bool)).tolist() == [1, 1, 1]
    with pytest.raises(UsageError, match="expected 0 and 1 as truth"):
        score("accuracy", np.array([2.0, -0.1, 0.4]), np.array([1, 2, 3]))


def test_accuracy_over_tokens_leaves_out_fillers():
    scores = np.zeros((2, 4, 3))
    scores[..., 1] = 1
    truth = np.array([[1, 1, 0, -100], [1, -100, -100, -100]])
    np.testing.assert_allclose(score("accuracy", scores, truth), [2 / 3, 1])
    with pytest.raises(UsageError, match="a row of truth without one"):
        score("accuracy", scores, np.full((2, 4), -100))


@pytest.mark.parametrize("bad", [3, -1])
def test_class_ids_beyond_the_classes_are_refused(bad: int):
    with pytest.raises(UsageError, match=f"expected class ids from 0 to 2 as truth, received {bad}"):
        score("accuracy", SCORES, np.array([0, 1, 2, bad]))


def test_halves_and_words_are_no_class_ids():
    with pytest.raises(UsageError, match="whole numbers"):
        score("accuracy", SCORES, np.array([0, 1, 2, 0.5]))
    with pytest.raises(UsageError, match="received <U3"):
        score("accuracy", SCORES, np.array(["cat", "dog", "cat", "dog"]))
    with pytest.raises(UsageError, match="one-hot"):
        score("accuracy", SCORES, np.ones((4, 3), int))


def test_top_breaks_ties_as_the_first_class_does():
    scores = np.array([[1.0, 1.0, 1.0, 0.0]] * 3)
    assert score("top-1", scores, np.array([0, 1, 2])).tolist() == [1, 0, 0]
    assert score("top-2", scores, np.array([0, 1, 2])).tolist() == [1, 1, 0]
    assert score("top-2", scores, np.array([[0, 2, 1, 0]] * 3)[:, :] * 1.5).tolist() == [1, 1, 1]
    with pytest.raises(UsageError, match="every class is among the first 4 of 4"):
        score("top-4", scores, np.array([0, 1, 2]))


def test_an_axis_of_one_class_is_no_axis_of_classes():
    other = SCORES[[1, 1, 2, 3]]
    for shape in ((4, 3, 1), (4, 1, 3), (4, 3, 1, 1), (4, 1, 1, 3)):
        assert score("accuracy", SCORES.reshape(shape), other.reshape(shape)).tolist() == [0, 1, 1, 1]
    with pytest.raises(UsageError, match="accuracy: expected truth of class ids"):
        score("accuracy", np.zeros((1, 1, 5, 5)), np.zeros((1, 1, 5, 5)))


# --- numbers ----------------------------------------------------------------------------------------------------------


def test_errors_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    output, truth = RNG.normal(size=(2, 50))
    assert score("mae", output, truth).mean() == pytest.approx(metrics.mean_absolute_error(truth, output))
    rows = score("rmse", output[None], truth[None])
    assert rows[0] == pytest.approx(metrics.root_mean_squared_error(truth, output))


def test_cosine_by_hand_and_scikit_learn():
    output = np.array([[1.0, 0], [1, 1], [0, 0], [0, 0], [-1e100, 0]])
    truth = np.array([[2.0, 0], [1, 0], [0, 0], [1, 0], [1e100, 0]])
    np.testing.assert_allclose(score("cosine", output, truth), [1, np.sqrt(0.5), 1, 0, -1])
    pairwise = pytest.importorskip("sklearn.metrics.pairwise")
    output, truth = RNG.normal(size=(2, 30, 64))
    theirs = np.diag(pairwise.cosine_similarity(output, truth))
    np.testing.assert_allclose(score("cosine", output, truth), theirs)


# --- masks ------------------------------------------------------------------------------------------------------------


def test_masks_of_classes_by_hand():
    ids = np.array([[[0, 0], [1, 1]], [[0, 0], [0, 0]]])
    truth = np.array([[[0, 1], [1, 1]], [[0, 0], [0, 0]]])
    logits = np.moveaxis(np.eye(4)[ids], -1, 1)
    np.testing.assert_allclose(score("iou", logits, truth), [(1 / 2 + 2 / 3) / 2, 1])
    for other in (
        truth[:, None],
        np.moveaxis(np.eye(4)[truth], -1, 1),
        np.moveaxis(np.eye(4, dtype=int)[truth], -1, 1),
    ):
        np.testing.assert_allclose(score("iou", logits, other), score("iou", logits, truth))
    np.testing.assert_allclose(score("iou", np.eye(4)[ids], truth), score("iou", logits, truth))  # channels last
    np.testing.assert_allclose(score("iou", ids, truth), score("iou", logits, truth))  # the model gives ids
    np.testing.assert_allclose(score("iou", ids * 10**9, truth * 10**9), score("iou", logits, truth))


def test_places_without_a_class_don_t_count():
    ids, truth = np.array([[[0, 1], [1, 1]]]), np.array([[[0, 255], [1, 255]]], np.uint8)
    logits = np.moveaxis(np.eye(3)[ids], -1, 1)
    assert score("iou", logits, truth).tolist() == [1]
    assert score("iou", logits, np.array([[[0, 255], [0, 1]]])).tolist() == [pytest.approx(1 / 2)]
    with pytest.raises(UsageError, match="a row of truth without one"):
        score("iou", logits, np.full((1, 2, 2), 255))
    with pytest.raises(UsageError, match="expected class ids from 0 to 2 as truth, received 7"):
        score("iou", logits, np.full((1, 2, 2), 7))


def test_masks_are_scikit_learns():
    metrics = pytest.importorskip("sklearn.metrics")
    logits, truth = RNG.normal(size=(6, 4, 9, 8)), RNG.integers(0, 4, (6, 9, 8))
    by_row = [
        metrics.jaccard_score(t.ravel(), s.argmax(0).ravel(), average="macro")
        for s, t in zip(logits, truth, strict=True)
    ]
    np.testing.assert_allclose(score("iou", logits, truth), by_row)
    yes = truth == 2
    by_row = [metrics.jaccard_score(t.ravel(), s[0].ravel() > 0) for s, t in zip(logits, yes, strict=True)]
    np.testing.assert_allclose(score("iou", logits[:, :1], yes), by_row)


@pytest.mark.parametrize("truth_type", [bool, np.uint8, np.float32])
def test_one_channel_of_probabilities_or_logits(truth_type):
    shares = np.array([[0.9, 0.6, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]])[:, None, None]
    truth = np.array([[1, 0, 1, 0], [0, 0, 0, 0]]).astype(truth_type)[:, None]
    np.testing.assert_allclose(score("iou", shares, truth), [1 / 3, 1])
    np.testing.assert_allclose(score("iou", np.log(shares / (1 - shares)), truth), [1 / 3, 1])
    assert score("iou", shares > 0.5, truth > 0).tolist() == score("iou", shares, truth).tolist()


def test_the_reference_says_whether_both_are_logits():
    reference, output = np.array([[[-3.0, 0.4], [2.0, -1.0]]]), np.array([[[0.0, 0.4], [0.9, 0.0]]])
    assert score("iou", output, reference).tolist() == [1]
    shares, beyond = np.array([[[0.0, 0.4], [0.9, 0.0]]]), np.array([[[0.0, 0.3], [1.2, 0.0]]])
    assert score("iou", beyond, shares).tolist() == [1]


# --- every metric -----------------------------------------------------------------------------------------------------

CASES = {
    "accuracy": (SCORES, np.array([1, 1, 2, 0])),
    "top-2": (SCORES, np.array([1, 1, 2, 0])),
    "mae": (SCORES, SCORES + 1),
    "rmse": (SCORES, SCORES + 1),
    "cosine": (SCORES, SCORES + 1),
    "iou": (RNG.random((4, 3, 2, 2)), RNG.integers(0, 3, (4, 2, 2))),
}


@pytest.mark.parametrize("word", CASES)
def test_a_nan_costs_its_row_alone(word: str):
    output, truth = CASES[word]
    whole = score(word, output, truth)
    assert np.isfinite(whole).all()
    broken = output.copy()
    broken.reshape(4, -1)[1, 0] = NAN
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = score(word, broken, truth)
    np.testing.assert_array_equal(rows, np.where(np.arange(4) == 1, NAN, whole))


@pytest.mark.parametrize("word", CASES)
def test_rows_stand_for_themselves_whatever_their_batch_and_float_type(word: str):
    output, truth = CASES[word]
    one_by_one = [score(word, output[row : row + 1], truth[row : row + 1])[0] for row in range(4)]
    np.testing.assert_allclose(score(word, output, truth), one_by_one)
    assert score(word, output[:0], truth[:0]).size == 0
    assert np.isfinite(score(word, output.astype(np.float16), truth)).all()


@pytest.mark.parametrize("word", CASES)
def test_truth_of_another_shape_or_of_words_is_refused(word: str):
    output, truth = CASES[word]
    for bad in (
        truth[:3],
        np.zeros((4, 7, 2)),
        ["a", "b", "c", "d"],
        [np.zeros((2, 3)), *[np.zeros(2)] * 3],
        3 * [[1]] + [[[1], 2]],
    ):
        with pytest.raises(UsageError, match=f"{word}: expected .*received"):
            score(word, output, bad)
    with pytest.raises(UsageError, match="expected"):
        score(word, np.zeros((4, 0)), np.zeros((4, 0)))


def test_bfloat16_is_taken():
    types = pytest.importorskip("ml_dtypes")
    output = np.array([[1.0, 2.0]]).astype(types.bfloat16)
    assert score("mae", output, np.array([[1.0, 4.0]])).tolist() == [1]
    assert score("mae", output, output).tolist() == [0]


# --- which output, which truth ----------------------------------------------------------------------------------------

LABEL, SHARES, HIDDEN = (
    np.array([1, 0]),
    np.array([[0.2, 0.8], [0.7, 0.3]], np.float32),
    np.zeros((2, 4, 5), np.float32),
)
TREES = {"label": LABEL, "hidden": HIDDEN, "probabilities": SHARES}


@pytest.mark.parametrize(
    ("word", "scores", "truth", "expected"),
    [
        ("accuracy", "", LABEL, "probabilities"),
        ("top-1", "", LABEL, "probabilities"),
        ("mae", "", LABEL, "hidden"),
        ("mae", "probabilities", LABEL, "probabilities"),
        ("accuracy", "label", LABEL, "label"),
        ("mae", "", {"other": HIDDEN, "probabilities": LABEL}, "probabilities"),
    ],
)
def test_the_output_is_named_by_scores_or_truth_or_the_first_float_one(word: str, scores: str, truth, expected: str):
    picked = pick_output(TREES, truth, scores, find_metric(word))
    assert picked == expected
    assert pick_truth(picked, truth, TREES) is LABEL


def test_one_truth_of_another_name_is_that_of_any_output():
    assert pick_truth("hidden", {"species": LABEL}, TREES) is LABEL


@pytest.mark.parametrize(
    ("truth", "scores", "message"),
    [
        (LABEL, "logits", "unknown output 'logits': known: hidden, label, probabilities"),
        ({"a": LABEL, "b": LABEL}, "", "the truth has a, b; the outputs are label, hidden, probabilities"),
        ({}, "", "the truth has nothing"),
        ({"label": LABEL}, "probabilities", "no truth for output 'probabilities': the truth has label"),
    ],
)
def test_what_isn_t_clear_is_refused(truth, scores: str, message: str):
    with pytest.raises(UsageError, match=message):
        pick_truth(pick_output(TREES, truth, scores, find_metric("accuracy")), truth, TREES)


def test_an_output_of_whole_numbers_is_taken_if_it_is_the_only_one():
    assert pick_output({"mask": LABEL}, LABEL, "", find_metric("iou")) == "mask"
    with pytest.raises(UsageError, match=r"no output holds floats; name one with --scores: a int64\[2\], b int64\[2\]"):
        pick_output({"a": LABEL, "b": LABEL}, LABEL, "", find_metric("iou"))
