"""The host: this one as it is, and others as their files describe them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from machine_fixtures import MIB

from steadytrain.capture.machine.host import HostProbe, memory_limit
from steadytrain.capture.machine.machine_columns import HOST_COLUMNS

# -- the host ----------------------------------------------------------------------------------------------------------


def write_files(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_this_host(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path / "not" / "there yet")
    before = probe.read()
    ballast = bytearray(os.urandom(64 * MIB))
    after = probe.read()
    assert 50 * MIB < after["process_memory_bytes"] - before["process_memory_bytes"] < 200 * MIB
    assert after["process_memory_peak_bytes"] >= after["process_memory_bytes"] - MIB
    assert 0 < after["available_memory_bytes"] <= probe.facts()["memory_bytes"]
    assert after["disk_free_bytes"] > 0
    assert 0.0 <= after["cpu_busy_share"] <= 1.0
    assert after["process_cpu_cores"] > 0.0
    assert "cpu_busy_share" not in before, "nothing is known of the time before the first reading"
    assert probe.facts()["cores"] == os.cpu_count()
    assert set(after) <= set(HOST_COLUMNS)
    del ballast


def test_what_a_host_does_not_tell_is_absent(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path, proc=tmp_path / "proc", control_groups=tmp_path / "cgroup")
    probe.read()
    assert set(probe.read()) == {"disk_free_bytes", "process_cpu_cores"}
    assert probe.facts()["memory_bytes"] is None


def test_a_host_without_swap_has_no_swap_in_use(tmp_path: Path) -> None:
    write_files(tmp_path, {"meminfo": "MemTotal: 100 kB\nMemAvailable: 50 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"})
    probe = HostProbe(tmp_path, proc=tmp_path)
    assert "swap_used_bytes" not in probe.read()
    write_files(tmp_path, {"meminfo": "MemTotal: 100 kB\nSwapTotal: 30 kB\nSwapFree: 10 kB\n"})
    assert probe.read()["swap_used_bytes"] == 20 * 1024


def test_the_busy_share_is_that_since_the_last_reading(tmp_path: Path) -> None:
    probe = HostProbe(tmp_path, proc=tmp_path)
    write_files(tmp_path, {"stat": "cpu  100 0 50 800 50 0 0 0 30 0\ncpu0 1 2\n"})
    assert "cpu_busy_share" not in probe.read()
    write_files(tmp_path, {"stat": "cpu  160 0 60 820 60 0 0 0 90 0\ncpu0 1 2\n"})
    assert probe.read()["cpu_busy_share"] == pytest.approx(0.7)
    assert "cpu_busy_share" not in probe.read(), "no time has passed"


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/job/task\n"}, None),
        ({"proc/self/cgroup": "0::/job\n", "cgroup/job/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/job/task\n",
                "cgroup/job/task/memory.max": "3000\n",
                "cgroup/job/task/memory.current": "1000\n",
                "cgroup/job/memory.max": "2000\n",
                "cgroup/job/memory.current": "1500\n",
            },
            (2000.0, 1500.0),
        ),
        (
            {"proc/self/cgroup": "0::/../host/path\n", "cgroup/memory.max": "700\n", "cgroup/memory.current": "70\n"},
            (700.0, 70.0),
        ),
        (
            {
                "proc/self/cgroup": "9:cpu:/x\n4:memory:/job\n0::/\n",
                "cgroup/memory/job/memory.limit_in_bytes": "5000\n",
                "cgroup/memory/job/memory.usage_in_bytes": "100\n",
                "cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            (5000.0, 100.0),
        ),
    ],
    ids=["no groups", "no files", "unlimited", "version 2, parent is tighter", "container", "version 1"],
)
def test_memory_limits_of_control_groups(
    tmp_path: Path, files: dict[str, str], limit: tuple[float, float] | None
) -> None:
    write_files(tmp_path, files)
    assert memory_limit(tmp_path / "proc", tmp_path / "cgroup") == limit
