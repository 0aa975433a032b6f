"""A learning rate that jumped: only the line of the jump is mended, and nothing where it cannot be told."""

from __future__ import annotations

import pytest

from steadytrain.diagnosis.cause_catalog import causes
from steadytrain.diagnosis.fix_order import Hints, OfScript, remedies
from steadytrain.diagnosis.patches.table import patches_for
from steadytrain.diagnosis.patches.wound import RateJump, Wound, jump_before
from trial_cases import window

CAUSE = "learning-rate-too-high"
JUMP = RateJump(0.01, 0.35, 121)
HEAD = """import torch
net = torch.nn.Linear(8, 1)
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(300):
"""


def texts(body: str, jump: RateJump | None = JUMP) -> tuple[list[str], str]:
    found, why = patches_for(CAUSE, HEAD + body, Wound(jump=jump), name="train.py")
    return [one.text for one in found], why


@pytest.mark.parametrize(
    ("bad", "good"),
    [
        (
            "    if step == 120: opt.param_groups[0]['lr'] = 0.35\n",
            "    if step == 120: opt.param_groups[0]['lr'] = 0.01\n",
        ),
        (
            "    late = 0.35\n    opt.param_groups[0]['lr'] = late\n",
            "    late = 0.01\n    opt.param_groups[0]['lr'] = late\n",
        ),
        ("    for g in opt.param_groups: g['lr'] *= 35\n", "    for g in opt.param_groups: g['lr'] *= 1\n"),
        ("    g['lr'] = g['lr'] * 35.0\n", "    g['lr'] = g['lr'] * 1\n"),
    ],
)
def test_only_the_line_of_the_jump_changes(bad: str, good: str) -> None:
    assert texts(bad)[0] == [HEAD + good]


def test_one_event_that_raises_the_rates_of_two_optimizers_is_mended_as_a_whole() -> None:
    """The rate of one of them alone leaves the other one too high."""
    head = HEAD.replace("for step", "other = torch.optim.SGD(net.parameters(), lr=0.02)\nfor step")
    body = """    if step == 120:
        for g in opt.param_groups: g['lr'] *= 35
        for g in other.param_groups: g['lr'] *= 35
    if step == 200:
        for g in other.param_groups: g['lr'] *= 35
"""
    mended = body.replace("35", "1", 2)
    found, _ = patches_for(CAUSE, head + body, Wound(jump=JUMP, optimizer="opt"), name="train.py")
    assert [one.text for one in found] == [head + mended]


@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("    opt.param_groups[0]['lr'] = rate(step)\n", "no"),
        ("    scheduler.step()\n", "no"),
        ("    g['lr'] = 0.35\n    h['lr'] = 0.35\n", "2"),
    ],
)
def test_nothing_is_patched_where_the_place_cannot_be_told(body: str, count: str) -> None:
    found, why = texts(body)
    assert found == []
    assert f"jumped from 0.01 to 0.35 at step 121, and {count} line" in why


def test_without_a_jump_the_rates_are_cut_as_before() -> None:
    assert "lr=0.00333" in texts("    pass\n", None)[0][0]


def test_a_jump_is_read_from_the_recorded_rates() -> None:
    losses = [1.0] * 60
    flat = window(losses, learning_rate=0.01)
    assert jump_before(flat, 50) is None
    flat.signals["learning_rate"][40:] = 0.35  # type: ignore[index]
    assert jump_before(flat, 50) == RateJump(0.01, 0.35, 41)
    assert jump_before(flat, 40) is None


def test_the_code_of_a_fix_keeps_the_rate_at_the_line_of_the_jump() -> None:
    cause = causes()[CAUSE]
    script = OfScript("torch.optim.sgd.SGD", 127, Hints("keep the rate at 0.01 at train.py:6"))
    made = remedies(cause, cause.interventions, [], target="run/x", replayed=True, of_script=script)
    code = {one.name: one.code for one in made}
    assert code["lower-learning-rate"] == "# keep the rate at 0.01 at train.py:6"
    assert "clip_grad_norm_" in code["clip"]
