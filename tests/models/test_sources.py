"""Sources of models: which words they claim, and one that an installed package adds."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from support.adapters.third_party import install

from shootout.core import plugins
from shootout.core.errors import UsageError
from shootout.core.exported import request
from shootout.core.exported.request import Source, find_claim, find_source, model_names
from shootout.models.sources import TABLE


@pytest.mark.parametrize(
    ("word", "source"),
    [
        ("digits", "zoo"),
        ("grid_probe", "probes"),
        ("some/net.onnx", "onnx"),
        ("forest.joblib", "trees"),
        ("Net.pt2", "program"),
        ("some/config.json", "transformers"),
        ("net.py:make", "factory"),
    ],
)
def test_each_word_has_one_source(word: str, source: str):
    assert type(find_source(word)) is plugins.load(TABLE[source])


class Remote(Source):
    """A third party's."""

    names = ("digits", "remote_net")
    origin = "file"


def test_a_package_adds_words_and_takes_none(monkeypatch: pytest.MonkeyPatch):
    point = EntryPoint(name="remote", value=f"{__name__}:Remote", group=plugins.SOURCES)
    monkeypatch.setattr(plugins, "third_parties", lambda kind: (point,) if kind == plugins.SOURCES else ())
    monkeypatch.setattr(plugins, "load", lambda place: Remote if "Remote" in place else LOAD(place))
    request.list_sources.cache_clear()
    try:
        assert type(find_source("remote_net")) is Remote
        assert request.is_file("remote_net")
        assert "remote_net" in model_names()
        assert type(find_source("digits")) is not Remote
    finally:
        request.list_sources.cache_clear()


LOAD = plugins.load


@pytest.mark.parametrize("code", [None, "raise SystemExit(3)", "class Half:\n    def __init__(self): raise OSError"])
def test_a_package_whose_source_does_not_load_takes_no_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str | None
):
    install(tmp_path, "half-gone", {"half": "half_source:Half"}, plugins.SOURCES)
    if code:
        (tmp_path / "half_source.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    request.list_sources.cache_clear()
    try:
        assert find_claim("digits")
        with pytest.raises(UsageError, match="did you mean 'digits'"):
            find_source("digit")
        with pytest.raises(UsageError, match="source 'half' of half-gone can't be loaded: "):
            find_claim("half")
    finally:
        request.list_sources.cache_clear()
        sys.modules.pop("half_source", None)


def test_a_word_that_none_claims_is_refused_with_the_nearest_name():
    assert find_claim("digit") is None
    with pytest.raises(UsageError, match="did you mean 'digits'"):
        find_source("digit")
