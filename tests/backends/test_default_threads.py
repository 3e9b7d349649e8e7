"""An arm without a number of threads leaves it to its library: no adapter sets one, or it sets the library's 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shootout.core.contract import Arm, Target


def arm(backend: str, threads: int) -> Arm:
    return Arm(target=Target(backend=backend), model="m", threads=threads)


@pytest.mark.parametrize(("threads", "said"), [(0, None), (2, 2)])
def test_ncnn_is_told_none(threads: int, said: int | None):
    from shootout.backends._ncnn.session import settings_of

    assert settings_of(arm("ncnn", threads)).get("num_threads") == said


@pytest.mark.parametrize(("threads", "said"), [(0, []), (1, []), (2, ["--task_topology_group_count=2"])])
def test_iree_makes_its_own_pool(threads: int, said: list[str]):
    from shootout.backends._iree.session import flags_of, name_of

    assert flags_of(arm("iree", threads)) == said
    assert name_of(arm("iree", threads)) == ("local-sync" if threads == 1 else "local-task")


def test_onnx_runtime_and_openvino_take_0_for_their_own():
    from shootout.backends._onnxruntime.account import settings_of
    from shootout.backends._openvino.graph import properties_of

    assert settings_of(arm("onnxruntime", 0))["intra_op_num_threads"] == 0
    assert properties_of(arm("openvino", 0))["INFERENCE_NUM_THREADS"] == "0"


def test_scikit_learn_has_its_own_number_of_jobs(tmp_path: Path):
    import joblib
    from sklearn import ensemble

    from shootout.core.contract import Artifact
    from shootout.models.native_trees import open_native

    fitted: Any = ensemble.RandomForestClassifier(2, n_jobs=7).fit(np.eye(4), [0, 1, 0, 1])
    joblib.dump(fitted, tmp_path / "forest.joblib")
    for threads, said in ((0, None), (2, 2)):
        assert open_native(Artifact.SKLEARN, tmp_path / "forest.joblib", threads).model.n_jobs == said
