"""A refused update does not make good what the updates before it did."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from scripts import run_script
from steadytrain.capture.incident.message import UNTOUCHED, off_course
from steadytrain.report import build
from steadytrain.storage.bundle import open_bundle

RISES = """
import torch

torch.manual_seed(0)
x, y = torch.randn(512, 16), torch.randn(512, 1)
net = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(80):
    if step == 40:
        optimizer.param_groups[0]["lr"] = 2.0
    rows = torch.randint(0, 512, (32,))
    loss = torch.nn.functional.mse_loss(net(x[rows]), y[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_weights_are_not_called_untouched_after_the_loss_ran_away(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RISES, encoding="utf-8")
    outcome = run_script(tmp_path, script)
    assert outcome.status == 70
    assert "this update was refused, but the loss left its course at step 4" in outcome.err
    assert "weights from before: snapshot step-" in outcome.err
    assert UNTOUCHED not in outcome.err
    bundle = open_bundle(outcome.run.incidents[0])
    for report in (build.from_bundle(bundle), build.from_run(outcome.run)):
        assert report.first is not None
        (word,) = [one for one in report.first.status if "left its course" in one.text]
        assert word.tone == "bad"
        sentence = report.summary[0]
        assert "refused" in sentence
        assert "the loss left its course at step 4" in sentence
        assert "weights from before: snapshot step-" in sentence
        assert "as they were before it" not in "".join((*report.summary, *(one.action for one in report.incidents)))


def test_it_is_said_that_no_weights_were_kept() -> None:
    assert off_course(1122, None).endswith("left its course at step 1,122; weights from before: none kept")
    first = off_course(122, Path("snapshots") / "step-000001" / "tensors")
    assert first.endswith("snapshot step-000001 (the weights that the run began with)")
