"""The folder of this file goes on the import path, here and in launched processes, so that tests share ``builders``.

An error of our own is raised, here and in launched processes, but where a test plants one and switches that off.

No test leaves a thread, or a process that remembers having compiled: that is noted in the runs of the next ones.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

import slow_tests
import warm

# How fast an example is made or run says how busy the machine is.
hypothesis.settings.register_profile(
    "whatever-the-load", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("whatever-the-load")

# Several test processes share the machine, and what they launch is warm (see there) only with one thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # as replays set it for what they launch
os.environ["STEADYTRAIN_RAISE_OWN_ERRORS"] = "1"
# Where no compiled module may be kept, a fresh interpreter compiles torch and us anew, for longer than its script runs.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
TESTS = os.path.dirname(__file__)
PATHS = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
os.environ["PYTHONPATH"] = os.pathsep.join(PATHS if TESTS in PATHS else [*PATHS, TESTS])

if warm.POSSIBLE and not os.environ.get(warm.COLD):
    # No test takes the power away, and a disk takes milliseconds for each file. So it is in warm processes.
    os.fsync = warm.sync

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So a shell starts what runs in its background, and a process that is started from there could not be interrupted.
    signal.signal(signal.SIGINT, signal.default_int_handler)

THREAD_END_S_MAX = 60.0
MANY_MODULES, MANY_TESTS = 20, 20
_modules_out_of_sight = 0
_tests_in_sight = 0


def own_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("steadytrain")}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    slow_tests.mark_all(config, items)


@pytest.fixture(autouse=True)
def _only_what_is_new_is_searched() -> None:
    """A watch searches the process for models, and here that holds what all tests together import and leave."""
    global _modules_out_of_sight, _tests_in_sight
    _tests_in_sight += 1
    if len(sys.modules) > _modules_out_of_sight + MANY_MODULES or _tests_in_sight >= MANY_TESTS:
        gc.collect()
        gc.freeze()
        _modules_out_of_sight, _tests_in_sight = len(sys.modules), 0


@pytest.fixture(autouse=True)
def _own_main() -> Iterator[None]:
    """A script that a test runs in its own process becomes ``__main__``, where the next test would find its names."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = own_threads()
    yield
    deadline = time.monotonic() + THREAD_END_S_MAX
    while own_threads() - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not own_threads() - before, "a test left a thread behind"


@pytest.fixture(autouse=True)
def _nothing_stays_compiled() -> Iterator[None]:
    yield
    dynamo = sys.modules.get("torch._dynamo")
    if dynamo is None:
        return
    counters = sys.modules["torch._dynamo.utils"].counters
    if counters["stats"] or counters["frames"] or any(sys.modules["torch._dynamo.eval_frame"].cached_backends.values()):
        dynamo.reset()
        counters.clear()


@pytest.fixture
def entered(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[object, str, str]]:
    """Runs a command line of ours in this process, where nothing that it launches is wanted."""

    def run(*arguments: object, folder: Path) -> tuple[object, str, str]:
        from steadytrain.cli.main import entry

        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["steadytrain", *map(str, arguments)])
        with pytest.raises(SystemExit) as ending:
            entry()
        return ending.value.code, *capsys.readouterr()

    return run
