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
