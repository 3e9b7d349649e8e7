"""scikit-learn, LightGBM and XGBoost: each library runs the file that it wrote itself.

There is no `account`, since no library tells what it runs node by node, no `quantize`, since comparisons have no
scales, and no `session`: it stands beside the adapter.
"""

from __future__ import annotations

from shootout.core.adapter import Entry

_OWN_FILE = "it runs {model} as it is, so copy that file"

SKLEARN = Entry(
    path="shootout.backends._trees.backend:sklearn",
    extra="trees",
    needs="scikit-learn, and a model file of its own",
    installs={"": ("scikit-learn", "joblib")},
    movable=True,
    loads={"": ("sklearn", "scipy", "joblib", "pandas", "pyarrow")},
    unshippable={"": _OWN_FILE},
    own_files=True,
    ready_s=1.5,
    build_s=0.3,
    copies=0.0,
)

LIGHTGBM = Entry(
    path="shootout.backends._trees.backend:lightgbm",
    extra="trees",
    needs="lightgbm, and a model file of its own",
    installs={"": ("lightgbm",)},
    movable=True,
    loads={"": ("lightgbm", "sklearn", "scipy", "joblib", "pandas", "pyarrow")},
    unshippable={"": _OWN_FILE},
    own_files=True,
    ready_s=1.5,
    build_s=0.3,
    copies=0.0,
)

XGBOOST = Entry(
    path="shootout.backends._trees.backend:xgboost",
    extra="trees",
    needs="xgboost or xgboost-cpu, and a model file of its own",
    installs={"": ("xgboost-cpu|xgboost",)},
    movable=True,
    loads={"": ("xgboost", "sklearn", "scipy", "joblib", "pandas", "pyarrow")},
    unshippable={"": _OWN_FILE},
    own_files=True,
    ready_s=1.5,
    build_s=0.3,
    copies=0.0,
)
