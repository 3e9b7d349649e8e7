"""The table of scenarios: each name leads to an object of that name, and an unknown one to the nearest."""

import pytest

from shootout.core.errors import UsageError
from shootout.core.scenario import Scenario, find_scenario, scenario_names


def test_each_name_leads_to_an_object_of_that_name():
    assert scenario_names()[:2] == ("latency", "throughput")
    found = [find_scenario(name) for name in scenario_names()]
    assert tuple(one.name for one in found) == scenario_names()
    assert all(isinstance(one, Scenario) and one.measures for one in found)


def test_an_unknown_scenario_is_told_with_the_nearest_one():
    with pytest.raises(UsageError, match="unknown scenario 'latncy': did you mean 'latency'"):
        find_scenario("latncy")
