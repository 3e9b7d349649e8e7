"""Which files a source can import: every way to write an import, held against what Python then loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.factories import write

from shootout.models.user import source

FILES = {
    "part.py": "A = 1\n",
    "scratch.py": "import part\n",
    "nets/__init__.py": "",
    "nets/deep/__init__.py": "",
    "nets/deep/block.py": "from ..layers import norm\n",
    "nets/layers.py": "import part as norm\n",
    "nets/notes.py": "",
    "every/__init__.py": "__all__ = ['one']\n",
    "every/one.py": "",
    "every/two.py": "",
    "lazy/__init__.py": "def __getattr__(name):\n    import part\n    return part\n",
    "lib/odd.py": "",
    "mod\u00e8le.py": "",
}
LOADED = """
import sys
sys.path.insert(0, {root!r})
import m
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print("\\n".join(file for file in files if file.startswith({root!r})))
"""


@pytest.mark.parametrize(
    "text",
    [
        "import part",
        "import os, part as p",
        "import os; import part",
        "if True: import part",
        "def f():\n\timport part\nf()",
        "from nets.deep import block",
        "from nets.deep.block import norm",
        "from nets . deep import (  # the (deep) ones\n    block,\n)",
        "from nets \\\n    import layers",
        "from nets.deep import \\\n    block as b",
        "import nets.deep.block",
        "from every import *",
        "import sys; sys.path.append(sys.path[0] + '/lib'); import odd",
        "import importlib; importlib.import_module('.'.join(['nets', 'notes']))",
        "__import__('sc' + 'ratch')",
        "exec('import scra' + 'tch')",
        "from lazy import anything",
        "from mod\u00e8le import __name__",
        "import os, mode\u0300le",
        "x = 'a#b'; import part",
        "x = 'a#b'; from nets \\\n    import layers",
        "x = 1  # a comment goes on for nobody \\\nimport part",
        "import \\\n  os, \\\n  part",
        "\ufeffimport part",
        "import os\rimport part",
        "\fimport part",
    ],
)
def test_whatever_python_loads_counts(tmp_path: Path, text: str) -> None:
    for name, content in FILES.items():
        write(tmp_path / name, content)
    place = source.find(f"{write(tmp_path / 'm.py', text)}:make")
    done = subprocess.run(
        [sys.executable, "-S", "-c", LOADED.format(root=str(tmp_path))], check=True, capture_output=True, text=True
    )
    loaded = {Path(line) for line in done.stdout.split()}
    assert len(loaded) > 1
    assert loaded <= set(place.files())


def counted(folder: Path, text: str) -> set[str]:
    for name, content in FILES.items():
        write(folder / name, content)
    place = source.find(f"{write(folder / 'm.py', text)}:make")
    return {str(path.relative_to(folder)) for path in place.files()}


def test_what_no_import_names_does_not_count(tmp_path: Path) -> None:
    assert counted(tmp_path, "import torch\n") == {"m.py"}
    assert counted(tmp_path, "from nets import layers\n") == {"m.py", "nets/__init__.py", "nets/layers.py", "part.py"}
    assert counted(tmp_path, "# import part\n") == {"m.py"}


def test_source_that_imports_by_other_means_has_all_files(tmp_path: Path) -> None:
    assert counted(tmp_path, "import pickle\n") == {"m.py", *FILES}


def test_a_packages_own_files_above_the_factory_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, content in FILES.items():
        write(tmp_path / name, content)
    monkeypatch.chdir(tmp_path)
    found = {path.name for path in source.find("nets.deep.block:make").files()}
    assert found == {"__init__.py", "block.py", "layers.py"}, "part.py lies outside of the package"


def test_what_is_loaded_and_does_not_count_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = source.find(f"{write(tmp_path / 'm.py', 'A = 1')}:make")
    write(tmp_path / "hidden_way.py", "A = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert place.unseen() == []
    try:
        __import__("hidden_way")
        assert place.unseen() == ["hidden_way.py"]
    finally:
        sys.modules.pop("hidden_way", None)
