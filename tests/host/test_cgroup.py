"""Limits of control groups, versions 1 and 2, on recorded trees."""

from __future__ import annotations

from pathlib import Path

import pytest

from shootout.core.host import placement
from shootout.tell import machines

V1_NO_LIMIT = "9223372036854771712\n"


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_version_2_limits_of_every_level_count(tmp_path: Path):
    root = tree(
        tmp_path,
        {
            "a/cpu.max": "150000 100000\n",
            "a/b/cpu.max": "max 100000\n",
            "a/cpu.stat": "nr_throttled 3\nthrottled_usec 30\n",
            "a/b/cpu.stat": "nr_throttled 1\nthrottled_usec 5\n",
            "a/memory.max": "1000\n",
            "a/memory.current": "700\n",
            "a/memory.stat": "anon 600\ninactive_file 100\n",
            "a/b/memory.max": "max\n",
            "other/cpu.max": "1000 100000\n",
        },
    )
    groups = placement.control_groups("cpu", "0::/a/b\n", root)
    assert groups == (root / "a/b", root / "a", root)
    assert placement.cpu_quota(groups) == 1.5
    assert placement.throttled(groups) == 4
    memory = placement.control_groups("memory", "0::/a/b\n", root)
    assert machines.memory_limit_bytes(memory) == 1000
    assert placement.memory_free_bytes(memory) == 400


def test_version_1_counts_a_linked_controller_once(tmp_path: Path):
    root = tree(
        tmp_path,
        {
            "cpu,cpuacct/box/cpu.cfs_quota_us": "300000\n",
            "cpu,cpuacct/box/cpu.cfs_period_us": "100000\n",
            "cpu,cpuacct/box/cpu.stat": "nr_throttled 2\nthrottled_time 4000\n",
            "memory/box/memory.limit_in_bytes": "5000\n",
            "memory/box/memory.usage_in_bytes": "4000\n",
            "memory/box/memory.stat": "inactive_file 1\ntotal_inactive_file 500\n",
            "memory/memory.limit_in_bytes": V1_NO_LIMIT,
            "memory/memory.usage_in_bytes": "4000\n",
        },
    )
    (root / "cpu").symlink_to("cpu,cpuacct")
    text = "3:cpu,cpuacct:/box\n2:memory:/box\n1:name=systemd:/box\n0::/\n"
    groups = placement.control_groups("cpu", text, root)
    assert placement.cpu_quota(groups) == 3.0
    assert placement.throttled(groups) == 2
    assert placement.memory_free_bytes(placement.control_groups("memory", text, root)) == 1500


def test_a_group_that_only_the_host_can_see_falls_back_to_the_mount(tmp_path: Path):
    root = tree(tmp_path, {"cpu.max": "100000 100000\n"})
    assert placement.cpu_quota(placement.control_groups("cpu", "0::/docker/0123abc\n", root)) == 1.0


@pytest.mark.parametrize("text", ["", "junk", "0:", "x:y:z"])
def test_no_groups_mean_no_limit(tmp_path: Path, text: str):
    groups = placement.control_groups("cpu", text, tmp_path / "missing")
    assert placement.cpu_quota(groups) is None
    assert placement.throttled(groups) is None
    assert machines.memory_limit_bytes(groups) is None
    assert placement.memory_free_bytes(groups) is None


def test_a_group_over_its_limit_has_nothing_free(tmp_path: Path):
    tree(tmp_path, {"memory.max": "1000\n", "memory.current": "1200\n"})
    assert placement.memory_free_bytes([tmp_path]) == 0
