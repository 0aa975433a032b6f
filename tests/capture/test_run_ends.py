"""The last lines of a run: what ended it, what was looked for, what could not be, and one next command."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from scripts import Ended, bare, finished, run_script, write_script

LOOP = """
import os, signal, sys
import torch
from torch import nn
signal_before = signal.getsignal(signal.SIGTERM)
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 3)
    def forward(self, x):
        if x.shape[0] > 100:
            raise MemoryError("too long")
        return self.inner(x)
net = Net()
optimizer = {optimizer}
for step in range(1, 9):
    x, y = torch.randn(200 if step == {long} else 8, 4), torch.zeros(8, dtype=torch.long)
    if step == {label}:
        y[5] = 3
    loss = nn.functional.cross_entropy(net(x), y)
    if step == {skip}:
        loss = loss * torch.nan
    if not torch.isfinite(loss):
        continue
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 6:
        {then}
"""


def ended(folder: Path, *options: str, then: str = "pass", fails: bool = False, **how: object) -> Ended:
    optimizer = "torch.optim.SGD(net.parameters(), lr=0.1)"
    parts = {"optimizer": optimizer, "long": 0, "label": 0, "skip": 0, **how}
    return run_script(folder, LOOP.format(then=then, **parts), *options, fails=fails)


def last(run: Ended) -> str:
    return run.told.splitlines()[-1]


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ({"label": 4}, 1, ["IndexError in step 4 at train.py:", "of 3 classes; row 5 has label 3"]),
        ({"long": 3}, 1, ["MemoryError in step 3 at train.py:", "in Net", "[200, 4]", "too long"]),
        ({"then": "raise ValueError('enough')"}, 1, ["ValueError after step 6", "enough"]),
        ({"then": "sys.exit(5)"}, 5, ["SystemExit(5) after step 6"]),
        ({"then": "os.kill(os.getpid(), signal.SIGINT)"}, -signal.SIGINT, ["interrupted", "after step 6"]),
    ],
    ids=["index", "memory", "value", "exit", "interrupt"],
)
def test_the_last_line_names_what_ended_the_script(
    how: dict[str, object], status: int, words: list[str], tmp_path: Path
) -> None:
    run = ended(tmp_path, **how)  # type: ignore[arg-type]
    assert run.status == status, run.err
    assert "no symptom" not in run.told
    for word in [*words, "steadytrain show"]:
        assert word in last(run)


def test_a_signal_that_ends_python_at_once_does_so_here(tmp_path: Path) -> None:
    """No handler of ours: one would wait for the native call that hangs."""
    run = ended(tmp_path, then="assert signal.getsignal(signal.SIGTERM) is signal_before; os.kill(os.getpid(), 15)")
    assert run.status == -signal.SIGTERM


def test_what_could_not_be_looked_for_is_said(tmp_path: Path) -> None:
    run = ended(tmp_path)
    assert re.search(r"8 steps seen; no symptom\n", run.err)
    assert re.search(r"could not be looked for: [a-z-]+ needs \d+ steps; ", run.told)
    assert "no evaluation metric was recorded for forgetting, validation-gap" in run.told
    for absent in ("loss-scale-collapse", "diverged-replicas"):  # the script has neither a loss scale nor ranks
        assert absent not in run.told
    assert "steadytrain show" in last(run)


@pytest.mark.parametrize(
    ("how", "fail_on", "status"),
    [
        ({"skip": 3}, "warning", 71),
        ({"skip": 3}, "critical", 0),
        ({}, "warning", 0),
        ({"skip": 3, "then": "sys.exit(4)"}, "warning", 4),
    ],
)
def test_fail_on(how: dict[str, object], fail_on: str, status: int, tmp_path: Path) -> None:
    run = ended(tmp_path, "--fail-on", fail_on, **how)  # type: ignore[arg-type]
    assert ("so the exit status is 71" in run.told) is (status == 71)
    assert run.status == status, run.err
    if "skip" in how:
        assert "symptoms: nonfinite-loss (1 warning)" in run.told


def test_a_note_is_not_contradicted(tmp_path: Path) -> None:
    source = """
    import torch
    from torch import nn
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for _ in range(4):
        scaler.scale(net(torch.randn(8, 4)).pow(2).mean()).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    """
    run = run_script(tmp_path, source)
    assert "call scaler.unscale_(optimizer) before clipping" in run.told
    assert "; 1 note on the watch itself above" in run.told


def test_the_line_of_the_script_comes_before_that_of_the_library(tmp_path: Path) -> None:
    source = """
    import json
    import torch
    json.loads("no words.")
    """
    run = run_script(tmp_path, source, fails=True)
    (line,) = [one for one in run.told.splitlines() if "ended by" in one]
    assert re.search(
        r"ended by JSONDecodeError after step 0 at train\.py:\d+ in decoder\.py:\d+: Expecting value", line
    )
    (tmp_path / "more").mkdir()
    named = run_script(tmp_path / "more", "import torch\nraise ValueError('no data.')\n", fails=True)
    assert "at train.py:2: no data; no PyTorch training" in named.told


NEVER_STEPS = """
    import torch
    from torch import nn
    net = nn.Linear(4, 1)
    {made}
    for _ in range(12):
        net.zero_grad()
        net(torch.randn(8, 4)).pow(2).mean().backward()
    """


def test_an_optimizer_that_never_steps(tmp_path: Path) -> None:
    source = NEVER_STEPS.format(made="optimizer = torch.optim.Adam(net.parameters())")
    told = run_script(tmp_path, source).told
    assert "warning: no update was made in 12 backward passes: Adam holds the weights and never made a step" in told


@pytest.mark.parametrize("made", ["", "other = torch.optim.SGD(nn.Linear(2, 2).parameters(), lr=0.1)"])
def test_gradients_of_what_no_optimizer_holds(tmp_path: Path, made: str) -> None:
    told = run_script(tmp_path, NEVER_STEPS.format(made=made)).told
    assert "no update was made" not in told
    assert "no PyTorch training was seen: 12 backward passes" in told or "no step was seen to its end" in told


def test_an_update_that_breaks_the_weights_is_named_and_no_good_state_is_claimed(tmp_path: Path) -> None:
    source = """
    import torch
    from torch import nn
    torch.manual_seed(0)
    table, head = nn.Embedding(20, 4), nn.Linear(4, 2)
    optimizer = torch.optim.Adam([*table.parameters(), *head.parameters()], eps=0.0)
    for step in range(4):
        rows = torch.randint(0, 10 if step < 2 else 20, (64,))
        loss = nn.functional.cross_entropy(head(table(rows)), rows % 2)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    run = run_script(tmp_path, source)
    assert run.status == 70
    assert "Embedding.weight became NaN or Inf in the update of step 1 itself (Adam, eps=0)" in run.told
    assert "weights, optimizer state and buffers are as they were" not in run.told
    assert "Embedding.weight held NaN or Inf already, since the first step; no good state is kept" in run.told
    assert any(symptom.name == "nonfinite-weight" and symptom.first_step == 1 for symptom in run.run.symptoms)


def test_the_status_of_a_script_that_is_ended_is_that_of_the_bare_one(tmp_path: Path) -> None:
    parts = {"optimizer": "torch.optim.SGD(net.parameters(), lr=0.1)", "long": 0, "label": 0, "skip": 0}
    script = write_script(tmp_path, LOOP.format(then="os.kill(os.getpid(), signal.SIGTERM)", **parts))
    assert finished(bare(script)).returncode == -signal.SIGTERM


def test_calls_that_raise_are_counted_where_the_script_goes_on(tmp_path: Path) -> None:
    source = """
    import torch
    from torch import nn
    net = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(6):
        try:
            loss = net(torch.randn(8, 3 if step in (2, 4) else 4)).pow(2).mean()
        except RuntimeError:
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    """
    run = run_script(tmp_path, source)
    assert run.status == 0
    assert "2 calls of the model raised, and the script continued" in run.told


def test_a_run_without_a_finished_step_says_so_in_one_sentence(tmp_path: Path) -> None:
    run = run_script(
        tmp_path,
        """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        model(torch.ones(1, 4)).sum().backward()
        """,
    )
    assert run.status == 0
    assert "no step was seen to its end: no detector could look at anything" in run.told
    assert "could not be looked for" not in run.told


def test_of_two_optimizers_that_are_called_the_same_the_variable_tells_which(tmp_path: Path) -> None:
    source = """
    import torch
    from torch import nn
    nets = [nn.Sequential(nn.Linear(4, 1)) for _ in range(2)]
    opt_a, opt_b = (torch.optim.Adam(net.parameters()) for net in nets)
    for _ in range(4):
        for net, opt in zip(nets, (opt_a, opt_b)):
            opt.zero_grad()
            net(torch.randn(8, 4)).pow(2).mean().backward()
            opt.step()
    """
    assert "only for the models that the Adam of Sequential (opt_a) updates" in run_script(tmp_path, source).told


@pytest.mark.parametrize(
    ("source", "status"),
    [("print('no torch')", 71), ("import torch; torch.ones(2).sum()", 71), ("raise SystemExit(3)", 3)],
    ids=["no-torch", "no-training", "its-own-status"],
)
def test_a_script_that_trains_nothing_does_not_pass_where_training_is_required(
    source: str, status: int, tmp_path: Path
) -> None:
    run = run_script(tmp_path, source, "--require-training")
    assert run.status == status, run.err
    assert ("no step of a training was seen, so the exit status is 71" in run.told) is (status == 71)


def test_one_that_trains_does(tmp_path: Path) -> None:
    assert ended(tmp_path, "--require-training").status == 0


def test_a_required_training_that_never_came_is_alerted_of(tmp_path: Path) -> None:
    alert = tmp_path / "alert.json"
    run = run_script(
        tmp_path, "print('all data was filtered out')", "--require-training", "--on-incident", f"tee {alert}"
    )
    assert run.status == 71, run.err
    told = json.loads(alert.read_text(encoding="utf-8"))
    assert (told["event"], told["severity"]) == ("end", "critical")
    assert "No step of a training was seen (--require-training)" in told["what"]
