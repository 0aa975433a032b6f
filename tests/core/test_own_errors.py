"""Errors of steadytrain's own calls are caught; those of the script's signal handlers are not."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import steadytrain
from steadytrain.core.own_errors import is_of_signal_handler, own, unless_it_fails

SOURCE = Path(steadytrain.__file__).parent
ON_THE_WAY = ("capture", "detection", "attach", "guard", "storage", "exporters")
"""Packages whose code runs between two instructions of a script."""

NOT_IN_A_SCRIPT = frozenset(
    {
        *("storage/roots.py", "storage/fleet.py", "storage/query.py", "storage/run_search.py", "storage/run_news.py"),
        *("storage/flight_records.py", "storage/bundle_contents.py", "storage/columnar.py", "attach/slurm_job.py"),
        *("exporters/exporter_process.py", "exporters/after_run.py", "exporters/alerts/url_check.py"),
        "exporters/alerts/command_call.py",
    }
)
PLAIN = re.compile(r"except (\([^()]*\bOSError\b|OSError\b)|(?<!\w)suppress\([^()]*\bOSError\b")


@pytest.fixture
def limit() -> Iterator[None]:
    """A handler of the script that raises after a moment."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("the script's limit")

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def opens_what_is_not_there() -> bool:
    try:
        open("/nowhere/at/all").close()
    except own(OSError):
        return False
    return True


def waits() -> None:
    try:
        time.sleep(5)
    except own(OSError):
        pytest.fail("caught")


def test_an_error_of_our_own_call_is_caught() -> None:
    assert not opens_what_is_not_there()
    with unless_it_fails(OSError):
        open("/nowhere/at/all").close()
    with pytest.raises(ValueError, match="another"), unless_it_fails(OSError):
        raise ValueError("another")


@pytest.mark.usefixtures("limit")
def test_the_scripts_limit_goes_through_except() -> None:
    with pytest.raises(TimeoutError, match="the script's limit"):
        waits()


@pytest.mark.usefixtures("limit")
def test_the_scripts_limit_goes_through_suppress() -> None:
    with pytest.raises(TimeoutError, match="the script's limit"), unless_it_fails(OSError):
        time.sleep(5)


def test_a_stop_iteration_of_a_handler_is_known_behind_a_generator() -> None:
    def handler(number: int, frame: FrameType | None) -> None:
        raise StopIteration

    def sleeping() -> Iterator[int]:
        time.sleep(5)
        yield 1

    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    try:
        with pytest.raises(RuntimeError) as raised:
            next(sleeping())
    finally:
        signal.signal(signal.SIGALRM, before)
    assert is_of_signal_handler(raised.value)


def test_no_code_on_the_way_catches_system_errors_plainly() -> None:
    """``TimeoutError`` is one of them: see ``core.own_errors``."""
    found = [
        f"{file.relative_to(SOURCE)}: {line.strip()}"
        for package in ON_THE_WAY
        for file in sorted((SOURCE / package).rglob("*.py"))
        if str(file.relative_to(SOURCE)) not in NOT_IN_A_SCRIPT
        for line in file.read_text(encoding="utf-8").splitlines()
        if PLAIN.search(line)
    ]
    assert not found
