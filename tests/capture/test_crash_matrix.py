"""A matrix that cannot be decomposed or inverted ends the script: what is kept, and the cause that it gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from scripts import Started, recorded, watched, write
from steadytrain.capture.incident.crash.singular_matrix import singular_matrix_document
from steadytrain.diagnosis.cause import CERTAIN
from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.experiments.crash_facts import facts_of_crash
from trial_cases import finite_case

SCRIPT = """
import torch
from torch import nn

class Whitening(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)

    def forward(self, inputs):
        hidden = self.inner(inputs) * inputs[..., :1]
        factor = torch.linalg.cholesky(hidden.transpose(1, 2) @ hidden)
        return torch.linalg.solve_triangular(factor, hidden.transpose(1, 2), upper=False)

torch.manual_seed(0)
model = Whitening()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for step in range(8):
    inputs = torch.randn(2, 6, 4)
    if step == 5:
        inputs[1, 2:] = 0.0
    loss = (model(inputs) - 1.0).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def raised(call: Callable[[], Any]) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return caught.value


def test_the_function_and_the_element_are_kept() -> None:
    two = torch.stack([torch.eye(2), torch.zeros(2, 2)])
    found = singular_matrix_document(raised(lambda: torch.linalg.inv(two)))
    assert found is not None
    assert (found["function"], found["element"]) == ("inv", 1)
    alone = singular_matrix_document(raised(lambda: torch.linalg.cholesky(torch.zeros(2, 2))))
    assert alone is not None
    assert (alone["function"], alone["element"]) == ("cholesky", None)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.linalg.svd(torch.full((2, 2), torch.nan)),
        lambda: torch.zeros(2) @ torch.zeros(3),
        lambda: [][1],
    ],
    ids=["svd of NaN", "shapes", "index"],
)
def test_other_errors_are_none(call: Callable[[], Tensor]) -> None:
    assert singular_matrix_document(raised(call)) is None


def test_a_matrix_that_is_not_finite_is_no_singular_one() -> None:
    def whiten(hidden: Tensor) -> Tensor:
        return torch.linalg.cholesky(hidden.T @ hidden)

    bad = torch.ones(3, 2).log() / 0.0
    assert torch.isnan(bad).all()
    assert singular_matrix_document(raised(lambda: whiten(bad))) is None
    assert singular_matrix_document(raised(lambda: whiten(torch.zeros(3, 2)))) is not None


def test_the_error_that_ends_a_script_names_its_cause(tmp_path: Path) -> None:
    ended = Started(watched(write(tmp_path, SCRIPT)), tmp_path).end()
    assert ended.status == 1
    assert not ended.failures, ended.err
    assert "a matrix could not be decomposed or inverted: the evidence is in" in ended.told
    facts = facts_of_crash(recorded(tmp_path))
    found = facts["singular_matrix"]
    assert (found["function"], found["element"]) == ("cholesky", 1)
    assert found["line"].startswith("script.py:")
    (sign,) = (
        one
        for one in causes()["singular-operation"].signature(finite_case(facts=facts)).signs
        if one.source == "fact singular_matrix"
    )
    assert sign.weight == CERTAIN
    assert f"torch.linalg.cholesky at {found['line']} has no result for its input, matrix 1 of its batch," in sign.what
