"""The suite of the package, on every backend that it ships."""

from shootout.testing.test_conformance import *  # noqa: F403 - its tests and their parameters
