"""The plug-in of pytest: the fixture `race`, whose claims a test asserts, and `--shootout-strict`.

It is an entry point, so pytest imports it in each project. It imports nothing of the package before a test races.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, cast

import pytest

if TYPE_CHECKING:
    from shootout.apps.judge.claim import JudgedClaim
    from shootout.commands.claims import Races
    from shootout.tell.study_options import RunOptions

STRICT = "--shootout-strict"
MAX_TIME_S = 90.0
"""Seconds of a race that is given no `max_time_s`, exports and builds included."""
RACES: pytest.StashKey[Races] = pytest.StashKey()
Method = TypeVar("Method", bound=Callable[..., Any])


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
        return RacedTarget(
            self._request, os.fspath(model) if isinstance(model, os.PathLike) else model, target, options
        )

    def __repr__(self) -> str:
        return "race"


class _Claim(partial["JudgedClaim"]):
    """Hold a method of a target before it is called, which is as little a claim as the target."""

    def __repr__(self) -> str:
        return f"{self.args[0]!r}.{self.func.__name__}"

    def __bool__(self) -> bool:
        __tracebackhide__ = True
        raise TypeError(f"{self!r} claims nothing without its parentheses: add (…)")


def _claims(method: Method) -> Method:
    """Let a method refuse to be asserted without its parentheses, since any method is true."""
    return cast("Method", property(partial(_Claim, method), doc=method.__doc__))


@dataclass(frozen=True, slots=True, repr=False)
class RacedTarget:
    """A target of a model, and what may be claimed of it.

    If the measurements can't tell a claim, the test is skipped with the reason; with `--shootout-strict` it fails.
    """

    _request: pytest.FixtureRequest
    model: Any
    target: str
    options: RunOptions

    @_claims
    def faster_than(self, other: str, by: float | None = None) -> JudgedClaim:
        """Claim that it is significantly faster than another target.

        Args:
            by: so many times at least, such as 1.15: no part of the 95 % interval lies below.
        """
        __tracebackhide__ = True
        return self._judge("faster" if by is None else f"{by}x faster", other)

    @_claims
    def same_outputs(self, within: float | str = 1e-4) -> JudgedClaim:
        """Claim that its outputs are those of the model in float64.

        Args:
            within: the largest relative error.
        """
        __tracebackhide__ = True
        return self._judge(f"same outputs within {within}")

    @_claims
    def p99_under(self, limit: str) -> JudgedClaim:
        """Claim that the 99th percentile of its latency is at most so long, such as `5ms`."""
        __tracebackhide__ = True
        return self._judge(f"p99 under {limit}")

    def _judge(self, claim: str, *others: str) -> JudgedClaim:
        """Judge a claim by the session's races, and keep what is said of it for the report of a test that fails."""
        __tracebackhide__ = True
        from shootout.apps.judge.claim import read_claim  # nothing is imported until a test races
        from shootout.commands.claims import Races
        from shootout.core.errors import Interrupted, ShootoutError

        config, folders = self._request.config, self._request.getfixturevalue("tmp_path_factory")
        races = config.stash.setdefault(RACES, Races(lambda: folders.mktemp("race"), MAX_TIME_S))
        try:
            judged = races.judge(self.model, read_claim(claim), (self.target, *others), self.options)
        except Interrupted:
            raise KeyboardInterrupt from None
        except ShootoutError as error:  # what is wrong stands in its sentence
            raise error.with_traceback(None) from None
        self._request.node.add_report_section("call", "shootout", f"{judged}\nshootout show {judged.run.folder}")
        if judged.standing == "unknown":
            limit_s = self.options.get("max_time_s", MAX_TIME_S)
            ended = "" if judged.run.complete else f"; max_time_s={limit_s:g} was over"
            end = pytest.fail if config.getoption(STRICT) else pytest.skip
            end(f"{judged}{ended} (shootout show {judged.run.folder})")
        return judged

    def __bool__(self) -> bool:
        """Refuse to be asserted: only a claim is true or false."""
        __tracebackhide__ = True
        raise TypeError(f"{self!r} claims nothing: add .faster_than(…), .same_outputs() or .p99_under(…)")

    def __repr__(self) -> str:
        return f"race({self.model!r}, {self.target!r})"
