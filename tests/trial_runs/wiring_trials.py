"""How the tests of trials of the wiring record a loop and try a change on it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from replaying import Loop, plain_process  # noqa: E402
from steadytrain.experiments.case import Case  # noqa: E402
from steadytrain.experiments.specs import NotApplicable, Outcome, Verdict  # noqa: E402
from steadytrain.experiments.trial_catalog import trial  # noqa: E402
from steadytrain.storage.tape_files import Recording  # noqa: E402
from trial_cases import finite_case  # noqa: E402
from trying import attempt  # noqa: E402

STEPS, EVERY = 40, 4
TOKENS, LENGTH = 12, 8


@pytest.fixture(autouse=True)
def _plain_process() -> Iterator[None]:
    with plain_process():
        yield


def long(loop: Loop) -> Any:
    """The same by another way: tried in `make test-all` only."""
    return pytest.param(loop, marks=pytest.mark.long)


def named(loop: Loop) -> str:
    return loop.__name__


def case_of(symptom: str, onset: int, **facts: Any) -> Case:
    """A case of a loop that was recorded whole, with its snapshots."""
    begins = tuple(range(1, STEPS, EVERY))
    made = finite_case(begins=begins, taped=((1, STEPS),), onset=onset, step=onset, facts=facts, after=STEPS - onset)
    found = replace(made.symptom, name=symptom, first_step=onset)
    return replace(made, symptom=found, symptoms=(found,))


def tried(name: str, loop: Loop, recording: Recording, case: Case) -> tuple[Verdict, list[Outcome]]:
    """The verdict of a trial of this loop beside the unchanged replay."""
    control, outcomes = [], []
    for which, into in (("unchanged", control), (name, outcomes)):
        plan = trial(which).plan(case)
        assert not isinstance(plan, NotApplicable), plan.why
        for spec in plan:
            assert spec.begin is not None
            outcome = attempt(loop, recording, spec.schedule, *spec.changes, begin=spec.begin)
            into.append(replace(outcome, spec=spec))
    assert control[0].exact is True
    return trial(name).judge(case, control, outcomes), outcomes


def why_not(name: str, **facts: Any) -> str:
    plan = trial(name).plan(case_of("loss-spike", 30, **facts))
    assert isinstance(plan, NotApplicable)
    return plan.why


# Attention.


class Reads(nn.Module):
    """One layer of attention over tokens and places."""

    def __init__(self, mask: bool, fused: bool) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(TOKENS, 32), nn.Embedding(LENGTH, 32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, TOKENS)
        self.mask, self.fused = mask, fused

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids) + self.places.weight[: ids.shape[1]]
        q, k, v = self.qkv(x).chunk(3, -1)
        if self.fused:
            return self.out(x + functional.scaled_dot_product_attention(q, k, v, is_causal=self.mask))
        scores = q @ k.transpose(1, 2) / math.sqrt(32)
        if self.mask:
            scores = scores.masked_fill(torch.ones(scores.shape[-2:]).triu(1).bool(), -math.inf)
        return self.out(x + scores.softmax(-1) @ v)


def long_case(**facts: Any) -> Case:
    case = case_of("loss-collapse", 70, **{"uniform_loss": math.log(TOKENS), **facts})
    return replace(case, begins=tuple(range(1, 80, EVERY)), taped=((1, 80),), after=10)
