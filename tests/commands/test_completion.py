"""Completion: what each place of a command line may become, what bash makes of it, and where it is installed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from support.console import call, here
from support.factories import write
from support.onnx_made import linear

from shootout import cli
from shootout.commands import completion
from shootout.errors import UsageError

PROGRAM = typer.main.get_command(cli.app)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("shootout ru", ["run"]),
        ("shootout --vers", ["--version"]),
        ("shootout run batch", ["batch-sweep"]),
        ("shootout run resi", ["residual_mlp"]),
        ("shootout run --model dig", ["digits", "digits_cnn"]),
        ("shootout run --ba", ["--batch", "--backends", "--baseline"]),
        ("shootout run --backends openv", ["openvino"]),
        ("shootout run --backends numpy,onnxruntime:cp", ["numpy,onnxruntime:cpu"]),
        ("shootout run --backends numpy:cpu:", ["numpy:cpu:fp32"]),
        ("shootout run --backends numpy:cpu", ["numpy:cpu", "numpy:cpu:fp32"]),
        ("shootout run --backends=torch-compile+ao", ["--backends=torch-compile+aoti"]),
        ("shootout run --option openvino.NUM", ["openvino.NUM_STREAMS="]),
        ("shootout run --option openvino.NUM_STREAMS=", ["openvino.NUM_STREAMS=2"]),
        ("shootout run recurrent --set ki", ["kind="]),
        ("shootout run --model recurrent --set kind=rnn,g", ["kind=rnn,gru"]),
        ("shootout run --set scen", ["scenario="]),
        ("shootout run --goal 'res", ["resolve"]),
        ("shootout run --threads 2 --scenario latency,se", ["latency,serve"]),
        ("shootout run digits --energy --gpu 0 --l2 c", ["cold"]),
        ("shootout selftest --device c", ["cpu", "cuda"]),
        ("shootout decide x --objective la", ["latency"]),
        ("shootout run digits x", []),
        ("shootout gone x", []),
        ("shootout run --option gone.x", []),
        ("shootout run gone.py:m", []),
    ],
)
def test_what_a_place_may_become(line: str, wanted: list[str]) -> None:
    assert completion.complete(PROGRAM, line) == wanted


def test_every_option_with_words_of_its_own_offers_them() -> None:
    names = {one.name for command in PROGRAM.commands.values() for one in command.params}  # type: ignore[attr-defined]
    assert set(completion._FINDERS) <= names, "an option was renamed"


def test_files_are_offered_where_they_are_meant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("net.onnx", "net.npz", "deep/net.toml", ".hidden/x.onnx"):
        write(tmp_path / name, "")
    write(tmp_path / "net.py", "def make(): ...\ndef make_wide(): ...\n")
    monkeypatch.chdir(tmp_path)

    def offered(words: str) -> list[str]:
        return completion.complete(PROGRAM, f"shootout {words}")

    assert offered("run net") == ["net.onnx", "net.py:"]
    assert offered("run net.py:") == ["net.py:make", "net.py:make_wide"]
    assert offered("run --metric net.py:") == ["net.py:make", "net.py:make_wide"]
    assert offered("run deep/") == ["deep/net.toml"]
    assert offered("run --inputs ") == ["deep/", "net.npz"]
    assert offered("show ") == offered("decide ") == ["deep/"]
    assert offered("decide x --policy deep/") == ["deep/net.toml"]


def test_the_sizes_of_a_file_and_the_parameters_of_a_factory_are_offered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linear(tmp_path / "net.onnx", ("batch", 3, "height", "width"), None)
    write(tmp_path / "net.py", "def make(depth=3, batch=1): ...\n")
    monkeypatch.chdir(tmp_path)

    def offered(words: str) -> list[str]:
        return completion.complete(PROGRAM, f"shootout {words}")

    assert offered("run net.onnx --set h") == ["height="]
    assert offered("run --model net.onnx,other.onnx --shape ") == ["x=1x3x224x224"]
    assert offered("sensitivity net.onnx --shape x") == ["x=1x3x224x224"]
    assert offered("run net.py:make --set de") == ["depth=", "device="]
    assert offered("run digits --shape ") == offered("run gone.onnx --shape ") == []


def test_the_hidden_command_prints_them_and_imports_no_framework(tmp_path: Path) -> None:
    code = (
        "import sys; sys.argv = ['shootout', 'complete', 'shootout run --backends torch-eager:cpu:b']\n"
        "from shootout.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n"
        "    print({*sys.modules} & {'torch', 'onnx', 'onnxruntime', 'jax', 'openvino', 'scipy'})"
    )
    assert call([sys.executable, "-c", code], tmp_path).out == "torch-eager:cpu:bf16\nset()\n"


@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_gets_what_stands_behind_its_own_word_breaks(tmp_path: Path) -> None:
    fake = write(tmp_path / "shootout", "#!/bin/sh\nprintf '%s\\n' numpy,openvino:cpu numpy,openvino:cpu:int8\n")
    fake.chmod(0o755)
    line = "shootout run --backends numpy,openvino:"
    code = f"COMP_LINE='{line}' COMP_POINT={len(line)}\n_shootout '{fake}'; echo ${{COMPREPLY[@]}}"
    whole = f"{completion.SCRIPTS['bash']}\n{code}"
    done = subprocess.run(["bash", "--norc", "-c", whole], capture_output=True, text=True, check=True)
    assert done.stdout == "cpu cpu:int8\n"


@pytest.mark.parametrize(
    ("shell", "file", "settings"),
    [
        ("/bin/bash", ".local/share/shootout/completion.bash", ".bashrc"),
        ("/usr/bin/zsh", ".local/share/shootout/completion.zsh", ".zshrc"),
        ("fish", ".config/fish/completions/shootout.fish", None),
    ],
)
def test_it_is_installed_for_the_shell_in_use_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shell: str, file: str, settings: str | None
) -> None:
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "ZDOTDIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", shell)
    if settings:
        (tmp_path / settings).write_text("mine\n")
    for _ in range(2):
        done = here("--install-completion", cwd=tmp_path)
        assert (done.code, done.out.endswith("start a new shell\n")) == (0, True)
    assert (tmp_path / file).read_text() == here("--show-completion", cwd=tmp_path).out
    if settings:
        assert (tmp_path / settings).read_text() == f"mine\n\nsource {tmp_path / file}\n"


def test_another_shell_is_told_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    with pytest.raises(UsageError, match="SHELL is 'tcsh': completion is available for bash, zsh, fish"):
        completion.script()
