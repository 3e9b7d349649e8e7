"""scikit-learn, LightGBM and XGBoost: each library runs the file that it wrote itself.

There is no `account`, since no library tells what it runs node by node, no `quantize`, since comparisons have no
scales, and no `session`: it stands beside the adapter.
"""

from __future__ import annotations

from functools import partial

from shootout.core.adapter import Entry

_TREES = partial(
    Entry,
    extra="trees",
    movable=True,
    unshippable={"": "it runs {model} as it is, so copy that file"},
    own_files=True,
    ready_s=1.5,
    build_s=0.3,
    copies=0.0,
)

SKLEARN = _TREES(
    path="shootout.backends._trees.backend:sklearn",
    needs="scikit-learn, and a model file of its own",
    installs={"": ("scikit-learn", "joblib")},
    loads={"": ("sklearn", "scipy", "joblib", "pandas", "pyarrow")},
)

LIGHTGBM = _TREES(
    path="shootout.backends._trees.backend:lightgbm",
    needs="lightgbm, and a model file of its own",
    installs={"": ("lightgbm",)},
    loads={"": ("lightgbm", "sklearn", "scipy", "joblib", "pandas", "pyarrow")},
)

XGBOOST = _TREES(
    path="shootout.backends._trees.backend:xgboost",
    needs="xgboost or xgboost-cpu, and a model file of its own",
    installs={"": ("xgboost-cpu|xgboost",)},
    loads={"": ("xgboost", "sklearn", "scipy", "joblib", "pandas", "pyarrow")},
)
