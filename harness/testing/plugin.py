"""Give pytest the option `--backend` if the conformance suite is asked for.

It is an entry point, so that an installed package is enough; in any other project's test run it does nothing.
"""

from __future__ import annotations

import pytest

SLOW = "slow: takes a minute or more; `-m 'not slow'` leaves it out"


def pytest_load_initial_conftests(early_config: pytest.Config, parser: pytest.Parser) -> None:
    """Add the option if `shootout.testing` is among the arguments."""
    if any(name.startswith("shootout.testing") for name in early_config.known_args_namespace.file_or_dir):
        add_option(parser)
        early_config.addinivalue_line("markers", SLOW)


def add_option(parser: pytest.Parser) -> None:
    """Add `--backend` to a run of the suite that is started otherwise."""
    parser.addoption(
        "--backend",
        action="append",
        metavar="NAME",
        help="run the conformance suite on this backend only (may be repeated); one that can't run here fails",
    )
