"""Every entry point from torch or the script is guarded by construction."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import steadytrain
from steadytrain.attach.entry_points import guest, guest_callbacks
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.guarded_events import (
    AROUND,
    CAPTURED,
    ENTRY_POINTS,
    IN_A_STEP,
    GuardedEvents,
)
from steadytrain.capture.hooks.patches import Events
from steadytrain.capture.snapshots.loaded_states import StateEvents
from steadytrain.core.errors import UsageError

SOURCES = Path(steadytrain.__file__).parent
GUEST_ROOMS = ("attach", "capture", "detection", "exporters", "integrations")

REGISTRATIONS = frozenset(
    {
        *("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook", "register_hook"),
        *("register_full_backward_pre_hook", "register_post_accumulate_grad_hook", "register_multi_grad_hook"),
        *("register_state_dict_pre_hook", "register_load_state_dict_post_hook", "register_module_forward_hook"),
        *("saved_tensors_hooks", "register_step_pre_hook", "register_step_post_hook"),
    }
)
ALLOWED = {"capture/hooks/module_hooks.py"}
"""The one file in which hooks are put on modules: ``hook_before`` and ``hook_after``."""


@pytest.fixture(autouse=True)
def _as_at_a_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "reraise", False)


class Broken:
    """Every entry point of it raises."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def raises(*args: Any, **kwargs: Any) -> Any:
            raise RuntimeError(f"planted in {name}")

        return raises


def members(protocol: type) -> set[str]:
    return {name for base in protocol.__mro__ for name in vars(base) if not name.startswith("_")}


def test_every_event_is_a_guarded_entry_point() -> None:
    assert members(Events) | members(StateEvents) == {*ENTRY_POINTS, *AROUND}


@pytest.mark.parametrize("name", ENTRY_POINTS)
def test_a_broken_entry_point_answers_as_if_nobody_watched(name: str) -> None:
    told: list[str] = []
    events = GuardedEvents(Broken(), Guard(told.append))
    for _ in range(2):
        assert getattr(events, name)(None, None) is ENTRY_POINTS[name][1]
    (line,) = told
    assert ENTRY_POINTS[name][0] in line
    assert "planted" in line


@pytest.mark.parametrize("name", AROUND)
def test_a_call_that_an_entry_point_makes_is_made_once(name: str) -> None:
    calls: list[int] = []

    def original(value: int) -> int:
        calls.append(value)
        return value + 1

    class Fails:
        when = "before"

        def __getattr__(self, name: str) -> Callable[..., Any]:
            def around(original: Callable[..., Any], *args: Any) -> Any:
                if self.when == "before":
                    raise RuntimeError("planted")
                original(*args)
                raise RuntimeError("planted")

            return around

    told: list[str] = []
    for Fails.when in ("before", "after"):
        calls.clear()
        assert GuardedEvents(Fails(), Guard(told.append)).around(name, original)(4) == 5
        assert calls == [4]
    assert len(told) == 2

    def fails(value: int) -> int:
        calls.append(value)
        raise ValueError("torch's own")

    for Fails.when in ("before", "after"):
        calls.clear()
        with pytest.raises(ValueError, match="torch's own"):
            GuardedEvents(Fails(), Guard(told.append)).around(name, fails)(4)
        assert calls == [4]


def test_hooks_are_put_on_in_one_file() -> None:
    """A hook that is put on elsewhere would have no guard."""
    found = [place for place in _registrations() if place.partition(":")[0] not in ALLOWED]
    assert not found, "use hook_before or hook_after:\n" + "\n".join(found)


def _registrations() -> Iterator[str]:
    for room in GUEST_ROOMS:
        for path in sorted((SOURCES / room).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in REGISTRATIONS:
                    yield f"{path.relative_to(SOURCES)}:{node.lineno}: {node.attr}"


def test_callbacks_of_a_trainer_are_guarded_and_new_ones_too(capsys: pytest.CaptureFixture[str]) -> None:
    @guest_callbacks("following the trainer")
    class Callback:
        def on_new(self) -> None:
            raise RuntimeError("planted")

        def on_misused(self) -> None:
            raise UsageError("wrong")

    Callback().on_new()
    assert "following the trainer failed (RuntimeError: planted)" in capsys.readouterr().err
    with pytest.raises(UsageError):
        Callback().on_misused()


def test_an_entry_point_of_the_script_gives_its_answer(capsys: pytest.CaptureFixture[str]) -> None:
    @guest("counting", 7)
    def count() -> int:
        raise RuntimeError("planted")

    assert count() == 7
    assert "counting failed" in capsys.readouterr().err


def test_a_message_that_cannot_be_printed_is_lost_and_nothing_else() -> None:
    class UnprintableError(RuntimeError):
        def __str__(self) -> str:
            raise ValueError("no text")

    def tell(text: str) -> None:
        raise BrokenPipeError

    for error in (RuntimeError("planted"), UnprintableError()):

        def fails(error: Exception = error) -> None:
            raise error

        assert Guard(tell).wrap(fails, 3)() == 3


def test_a_step_in_a_cuda_graph_is_left_out_and_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    events = GuardedEvents(Broken(), Guard(told.append))
    monkeypatch.setattr("steadytrain.capture.hooks.guarded_events.is_capturing", lambda: True)
    for name in IN_A_STEP:
        assert getattr(events, name)(None, None, None) == ENTRY_POINTS[name][1]
        assert getattr(events, name)(None, None, None) == ENTRY_POINTS[name][1]
    assert [events.around(name, lambda *values: values)(1, 2) for name in AROUND] == [(1, 2), (1, 2)]
    assert told == [f"warning: {CAPTURED}"]
    assert events.guard.warnings == [CAPTURED]
