"""Terms of a loss that were reduced differently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from steadytrain.core.model import Symptom
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.weighing import Suspect, weigh
from steadytrain.survey.calls import Calls
from trial_cases import finite_case

ROWS, PIXELS, LATENTS = 4, 256, 10
Loss = Callable[[Tensor, Tensor], Tensor]


def _kl(mean: Tensor) -> Tensor:
    return -0.5 * (1 - mean**2).sum(-1)


UNEQUAL: dict[str, Loss] = {
    "mean of pixels, sum of latents": lambda out, mean: F.mse_loss(out, torch.zeros_like(out)) + _kl(mean).mean(),
    "by hand": lambda out, mean: out.pow(2).mean() + 0.5 * (_kl(mean).sum() / ROWS),
    "in the other order": lambda out, mean: 0.3 * (-_kl(mean)).mean() + out.abs().mean(),
}
EQUAL: dict[str, Loss] = {
    "both summed over the row": lambda out, mean: out.pow(2).sum(-1).mean() + 4 * _kl(mean).mean(),
    "a weight that allows for it": lambda out, mean: out.pow(2).mean() + 1e-3 * _kl(mean).mean(),
    "a weight of zero": lambda out, mean: out.pow(2).mean() + 0.0 * _kl(mean).mean(),
    "a penalty of the weights": lambda out, mean: out.pow(2).mean() + 0.1 * mean.pow(2).sum(),
    "both averaged": lambda out, mean: out.pow(2).mean() + mean.pow(2).mean(),
}


def _seen(loss: Loss) -> list[dict[str, Any]]:
    calls = Calls()
    out, mean = torch.rand(ROWS, PIXELS, requires_grad=True), torch.rand(ROWS, LATENTS, requires_grad=True)
    calls.look(True)
    try:
        loss(out, mean)
    finally:
        calls.look(False)
    return calls.terms.unequal


@pytest.mark.parametrize("name", UNEQUAL)
def test_a_summed_term_beside_a_mean_is_seen(name: str) -> None:
    (found,) = _seen(UNEQUAL[name])
    assert (found["averaged"], found["summed"]) == (PIXELS, LATENTS)
    assert found["heavier"] >= 0.1 * PIXELS


@pytest.mark.parametrize("name", EQUAL)
def test_terms_that_match_are_not(name: str) -> None:
    assert _seen(EQUAL[name]) == []


LINE = "vae.py:40: loss = rec + beta * kl"
TERM = {"line": LINE, "place": "the second term of", "averaged": 256.0, "summed": 10.0, "heavier": 256.0}
WEIGHT = {
    "kind": "operand",
    "name": "beta",
    "line": LINE,
    "function": "mul",
    "step": 150,
    "before": 0.0,
    "after": 0.02,
}


def _order(severity: str, **facts: Any) -> list[str]:
    seen = Symptom("lost-progress", severity, 150, 200, "the loss rose")
    case = finite_case(
        symptom=seen, symptoms=(seen,), facts={"optimizer": "Adam", "settings_changed": [WEIGHT], **facts}
    )
    signatures = {name: one.signature(case) for name, one in causes().items()}
    order = list(weigh([Suspect(name, causes()[name], one) for name, one in signatures.items()], ()))
    return [name for name in order if name == "unknown" or not signatures[name].ruled_out]


def test_the_reductions_lead_and_not_the_weight_of_the_term() -> None:
    order = _order("warning", loss_reductions=[TERM])
    assert order[0] == "loss-function-misuse"
    assert "changed-setting" not in order
    assert _order("warning")[0] == "changed-setting"
    assert _order("warning", loss_reductions=[{**TERM, "line": "vae.py:9: other"}]).count("changed-setting") == 1
