"""A model repository of OpenVINO Model Server: `NAME/1/…`, which KServe mounts too, and the server's `config.json`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shootout.exported.shipped_folder import ShippedFolder
from shootout.ship.formats.served import copy_version, left_behind, tell

MOUNTED = "/models"
"""Where the server's container has the repository; its configuration names models by absolute paths."""


def write(shipped: ShippedFolder, folder: Path, name: str) -> Sequence[str]:
    """Write the repository of one model."""
    served = tell("ovms", shipped)
    copy_version(shipped, folder / name)
    config = {
        "name": name,
        "base_path": f"{MOUNTED}/{name}",
        "target_device": served.backend,
        "nireq": 1,
        "plugin_config": dict(served.settings),
    }
    (folder / "config.json").write_text(
        json.dumps({"model_config_list": [{"config": config}]}, indent=1) + "\n", encoding="utf-8"
    )
    return list(left_behind(shipped, served))
