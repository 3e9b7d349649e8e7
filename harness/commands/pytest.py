"""The plug-in of pytest: the fixture `race`, whose claims a test asserts, and `--shootout-strict`.

It is an entry point, so pytest imports it in each project. It imports nothing of the package before a test races.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import pytest

if TYPE_CHECKING:
    from shootout.apps.judge.claim import JudgedClaim
    from shootout.commands.claims import Races
    from shootout.tell.study_options import RunOptions

STRICT = "--shootout-strict"
MAX_TIME_S = 90.0
"""Seconds of a race that is given no `max_time_s`, exports and builds included."""
RACES = pytest.StashKey["Races"]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option by which a claim that can't be told is a failure."""
    words = "fail a test of the fixture `race`, in place of skipping it, if the measurements can't tell"
    parser.getgroup("shootout").addoption(STRICT, action="store_true", help=words)


@pytest.fixture
def race(request: pytest.FixtureRequest) -> RaceFixture:
    """Race the targets of a model: `assert race("net.onnx", "openvino").faster_than("onnxruntime")`."""
    return RaceFixture(request)


@dataclass(frozen=True, slots=True, repr=False)
class RaceFixture:
    """Race the targets of a model: what the fixture `race` is, for annotations."""

    _request: pytest.FixtureRequest

    def __call__(self, model: Any, target: str, /, **options: Unpack[RunOptions]) -> RacedTarget:
        """Return a target whose claims can be asserted; the first claim measures.

        Args:
            model: as `shootout run` takes it, or a `torch.nn.Module`.
            target: such as `openvino` or `onnxruntime:cpu:int8`.
            options: keywords of `shootout.run`, but for those that the claim gives.
        """
        model = os.fspath(model) if isinstance(model, os.PathLike) else model
        return RacedTarget(self, model, target, options)

    def __repr__(self) -> str:
        return "race"

    @property
    def _races(self) -> Races:
        """Return the races of this session."""
        from shootout.commands.claims import Races  # here and below: nothing is imported until a test races

        folders: pytest.TempPathFactory = self._request.getfixturevalue("tmp_path_factory")
        return self._request.config.stash.setdefault(RACES, Races(lambda: folders.mktemp("race"), MAX_TIME_S))

    def _judge(self, raced: RacedTarget, claim: str, *others: str) -> JudgedClaim:
        """Judge a claim, and keep what is said of it for the report of a test that fails."""
        __tracebackhide__ = True
        from shootout.apps.judge.claim import read_claim
        from shootout.core.errors import Interrupted, ShootoutError

        try:
            judged = self._races.judge(raced.model, read_claim(claim), (raced.target, *others), raced.options)
        except Interrupted:
            raise KeyboardInterrupt from None
        except ShootoutError as error:  # what is wrong stands in its sentence
            raise error.with_traceback(None) from None
        node = self._request.node
        node.add_report_section("call", "shootout", f"{judged}\nshootout show {judged.folder}")
        if judged.standing == "unknown":
            limit_s = raced.options.get("max_time_s", MAX_TIME_S)
            ended = "" if judged.run.complete else f"; max_time_s={limit_s:g} was over"
            end = pytest.fail if node.config.getoption(STRICT) else pytest.skip
            end(f"{judged}{ended} (shootout show {judged.folder})")
        return judged


@dataclass(frozen=True, slots=True, repr=False)
class RacedTarget:
    """A target of a model, and what may be claimed of it.

    If the measurements can't tell a claim, the test is skipped with the reason; with `--shootout-strict` it fails.
    """

    _race: RaceFixture
    model: Any
    target: str
    options: RunOptions

    def faster_than(self, other: str, by: float | None = None) -> JudgedClaim:
        """Claim that it is significantly faster than another target.

        Args:
            by: so many times at least, such as 1.15: no part of the 95 % interval lies below.
        """
        __tracebackhide__ = True
        claim = "faster" if by is None else f"{by}x faster"
        return self._race._judge(self, claim, other)

    def same_outputs(self, within: float | str = 1e-4) -> JudgedClaim:
        """Claim that its outputs are those of the model in float64.

        Args:
            within: the largest relative error.
        """
        __tracebackhide__ = True
        return self._race._judge(self, f"same outputs within {within}")

    def p99_under(self, limit: str) -> JudgedClaim:
        """Claim that the 99th percentile of its latency is at most so long, such as `5ms`."""
        __tracebackhide__ = True
        return self._race._judge(self, f"p99 under {limit}")

    def __bool__(self) -> bool:
        """Refuse to be asserted: only a claim is true or false."""
        __tracebackhide__ = True
        raise TypeError(f"{self!r} claims nothing: add .faster_than(…), .same_outputs() or .p99_under(…)")

    def __repr__(self) -> str:
        return f"race({self.model!r}, {self.target!r})"
