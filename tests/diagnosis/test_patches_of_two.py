"""Patches of scripts with two optimizers."""

from __future__ import annotations

import textwrap

from steadytrain.diagnosis.patches.table import patches_for
from steadytrain.diagnosis.patches.wound import Wound

TWO = """
    opt_g = torch.optim.Adam(generator.parameters(), lr=2e-4)
    opt_d = torch.optim.Adam(critic.parameters(), lr=6e-2)
    for group in opt_g.param_groups:
        group["lr"] = 1e-4
    for x in loader:
        opt_d.step()
"""


def test_of_two_optimizers_the_one_at_fault_is_changed() -> None:
    body, head = textwrap.dedent(TWO), "import torch\n"
    found, why = patches_for("learning-rate-too-high", head + body, Wound(optimizer="opt_d"), name="t.py")
    assert why == ""
    changed = [line for line in found[0].diff.splitlines() if line.startswith("+opt")]
    assert changed == ["+opt_d = torch.optim.Adam(critic.parameters(), lr=0.02)"]
    assert "1e-4" in found[0].text
    _, why = patches_for("learning-rate-too-high", head + body, Wound(), name="t.py")
    assert "2 optimizers" in why


def test_gradients_of_one_of_two_optimizers_are_cleared_before_its_own_backward() -> None:
    """What the backward of the other leaves after its step does not belong to the next one."""
    body = """
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        other = torch.optim.Adam(generator.parameters())
        for x, y in data:
            real = loss(x, y)
            real.backward()
            loss(y, x).backward()
            optimizer.step()
            other.zero_grad()
            loss(x, x).backward()
            other.step()
    """
    script = "import torch\n" + textwrap.dedent(body)
    found, why = patches_for("missing-zero-grad", script, Wound(optimizer="optimizer"), name="t.py")
    assert found, why
    assert "    optimizer.zero_grad()\n    real.backward()\n" in found[0].text
