"""A diagnosis first names the operation that the run did not name."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import bare, finished, write_script
from steadytrain.storage.bundle import open_bundle
from steadytrain.trial_runs import unnamed_operation
from steadytrain.trial_runs.unnamed_operation import name_operation

SCRIPT = """
import steadytrain
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
critic, generator = nn.Linear(8, 1), nn.Linear(4, 8)
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-3)
rows = torch.randn(64, 8)
with steadytrain.watch(runs_dir="runs", name="run"):
    for turn in range(1, 30):
        made = generator(torch.randn(16, 4))
        shown = torch.zeros(16, 1) if turn == 20 else torch.ones(16, 1)
        wrong = (shown * F.softplus(critic(made.detach()))).sum() / shown.sum()
        loss = F.softplus(-critic(rows)).mean() + wrong
        of_critic.zero_grad()
        loss.backward()
        of_critic.step()
        loss = F.softplus(-critic(made)).mean()
        of_generator.zero_grad()
        loss.backward()
        of_generator.step()
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("turns")
    write_script(folder, SCRIPT)
    done = finished(bare("train.py"), folder=folder)
    assert done.returncode == 70, done.stderr
    (path,) = (folder / "runs" / "run" / "incidents").iterdir()
    return path


@pytest.mark.slow
def test_the_operation_and_its_line_are_kept_with_the_incident(bundle: Path) -> None:
    assert open_bundle(bundle).incident.finding.located is None  # several optimizers take turns
    told: list[str] = []
    name_operation(bundle, "-", budget_s=120.0, slower=1.0, tell=told.append)
    located = open_bundle(bundle).incident.finding.located
    assert located is not None
    assert (located.operation, located.produced) == ("aten.div.Tensor", "nan")
    assert located.code == "wrong = (shown * F.softplus(critic(made.detach()))).sum() / shown.sum()"
    assert told == ["searching the first bad operation, which the run did not name"]


@pytest.mark.slow
def test_it_is_searched_once(bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_operation(bundle, "-", budget_s=120.0, slower=1.0, tell=print)
    monkeypatch.setattr(unnamed_operation, "find_again", lambda asked, wait_s: pytest.fail("searched again"))
    name_operation(bundle, "-", budget_s=120.0, slower=1.0, tell=print)


def test_neither_a_run_nor_moved_files_are_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unnamed_operation, "target", lambda source, step: pytest.fail("searched"))
    name_operation(tmp_path, "-", budget_s=120.0, slower=1.0, tell=print)
    name_operation(tmp_path, "/old=/new", budget_s=120.0, slower=1.0, tell=print)
