"""Batches that come again and again and are not extreme: a run that learns from them is left alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from steadytrain.core.model import Symptom
from steadytrain.guard.policy import built_in
from steadytrain.guard.repeats import Repeats
from steadytrain.guard.troubles import Troubles
from steadytrain.testing import steps

QUIET = [1.0 + 0.01 * (step % 5) for step in range(64)]
APART = 20


def followed(heights: Sequence[float], after: float, *, made: bool = True) -> tuple[Repeats, list[float]]:
    """Batches of such losses, every ``APART`` steps, each of which leaves the loss ``after`` behind, and whose updates
    are ``made`` or skipped; and all losses."""
    one, losses = Repeats(), list(QUIET)
    refused: list[int] = []
    for height in heights:
        one.look(stream(losses, refused), len(losses) + 1, height)
        losses.append(height)
        refused += [] if made else [len(losses)]
        for loss in (after, *QUIET[: APART - 1]):
            one.look(stream(losses, refused), len(losses) + 1, loss)
            losses.append(loss)
    return one, losses


def stream(losses: Sequence[float], refused: Collection[int] = ()) -> Any:
    window = steps(loss=np.array(losses), refused=refused)
    return cast(Any, SimpleNamespace(step=len(losses), history=SimpleNamespace(window=lambda: window)))


def rise(first: int, last: int) -> Symptom:
    return Symptom("lost-progress", "warning", first, last, "the loss rose")


def test_batches_whose_updates_were_skipped_say_nothing() -> None:
    assert not followed((200.0, 120.0, 90.0), after=1.5, made=False)[0].are_learned


@pytest.mark.parametrize(
    ("heights", "learned"),
    [
        ((200.0, 120.0), False),
        ((200.0, 120.0, 110.0), False),
        ((200.0, 120.0, 90.0), True),
        ((200.0, 90.0, 120.0), False),
        ((200.0, 120.0, 90.0, 210.0), False),
    ],
)
def test_a_loss_that_falls_each_time_is_learned(heights: tuple[float, ...], learned: bool) -> None:
    assert followed(heights, after=1.5)[0].are_learned is learned


def test_learning_explains_a_small_rise_and_no_large_one() -> None:
    one, losses = followed((200.0, 120.0, 90.0), after=1.5)
    symptom = rise(len(losses) + 1, len(losses) + 16)
    assert one.explain(symptom, stream([*losses, *[3.0] * 16]))
    assert not one.explain(symptom, stream([*losses, *[30.0] * 16]))
    assert not Repeats().explain(symptom, stream([*losses, *[3.0] * 16]))


@pytest.mark.parametrize("name", ["lost-progress", "exploding-gradients"])
def test_only_what_learning_does_not_explain_is_trouble(name: str) -> None:
    one, losses = followed((200.0, 120.0, 90.0), after=1.5)
    now = stream([*losses, *[3.0] * 4])
    now.together = False
    symptom = replace(rise(len(QUIET) + APART, len(losses) + 4), name=name)
    copies = cast(Any, SimpleNamespace(is_overwritten=lambda step: True))
    assert Troubles(built_in("steady"), Repeats()).is_new(symptom, now, [], copies)
    assert not Troubles(built_in("steady"), one).is_new(symptom, now, [], copies)
