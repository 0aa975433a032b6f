"""Operations of one kind on a line are bounded together; logarithms of probabilities have a lasting form."""

from __future__ import annotations

import pytest

from steadytrain.diagnosis.patches.table import patches_for
from steadytrain.diagnosis.patches.wound import Patch, Wound


def patch(body: str, operation: str = "log") -> Patch:
    found, why = patches_for("singular-operation", body, Wound(len(body.splitlines()), operation), name="train.py")
    assert found, why
    return found[0]


BCE = "loss = -(y * torch.log(p) + (1 - y) * torch.log(1 - p)).mean()"


def test_all_operations_of_one_kind_on_a_line_are_bounded() -> None:
    made = "loss = -(y * torch.log(p.clamp(min=1e-12)) + (1 - y) * torch.log((1 - p).clamp(min=1e-12))).mean()"
    assert patch(BCE).text == made


def test_a_denominator_of_two_divisions_is_bounded_once() -> None:
    body = "count = mask.sum()\nd = a / count + b / count"
    assert patch(body, "div").text == "count = mask.sum().clamp(min=1)\nd = a / count + b / count"


@pytest.mark.parametrize(
    ("body", "operation", "why"),
    [
        ("m = math.log(a)", "log", "no kinds of operations"),
        ("m = e[k].mean() / mask.sum()", "div", "2 kinds of operations"),
    ],
)
def test_numbers_of_python_and_several_kinds_are_left(body: str, operation: str, why: str) -> None:
    found, refused = patches_for("singular-operation", body, Wound(1, operation), name="train.py")
    assert (found, why in refused) == ([], True)


@pytest.mark.parametrize(
    ("body", "form"),
    [
        (BCE, "binary_cross_entropy_with_logits"),
        ("loss = -(y * torch.log(p + 1e-12) + (1.0 - y) * torch.log(1.0 - p + 1e-12)).sum()", "with_logits"),
        ("p = torch.sigmoid(x)\nloss = -p.log().mean()", "logsigmoid"),
        ("loss = -torch.log(torch.softmax(x, -1))[:, 0].mean()", "log_softmax"),
        ("loss = -x.softmax(-1).log().mean()", "cross_entropy"),
    ],
)
def test_the_form_that_takes_scores_is_named(body: str, form: str) -> None:
    what = patch(body).what
    bound, _, lasting = what.partition(" (better in the long run, and not tried: ")
    assert bound == "bound the argument or the denominator of the named operation"
    assert form in lasting


def test_a_logarithm_of_anything_else_has_no_other_form() -> None:
    assert "in the long run" not in patch("h = torch.log(x).mean()").what
