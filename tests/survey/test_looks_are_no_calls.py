"""What a look of the survey computes is no call of the script."""

from __future__ import annotations

import torch

from steadytrain.survey.observer import Observed
from steadytrain.survey.surveyed_steps import Alone


def observed() -> Observed:
    return Observed(Alone("main"), until=4, onset=None, first=1, done=lambda facts: None, notes=[])


def test_no_call_of_a_look_is_read_and_those_of_the_script_are() -> None:
    watched = observed()
    singular = watched.calls.seen.singular
    watched.calls.look(True)
    try:
        watched._look("state", lambda: torch.zeros(3).log())
        assert not singular
        torch.zeros(3).log()
        assert singular
    finally:
        watched.calls.look(False)


def test_a_look_that_fails_leaves_the_calls_watched() -> None:
    watched = observed()
    watched.calls.look(True)
    try:
        watched._look("state", lambda: [][0])
        assert watched.calls.active
    finally:
        watched.calls.look(False)
