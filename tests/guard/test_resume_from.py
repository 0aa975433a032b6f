"""``run --resume-from INCIDENT --with FIX``: the state from before an incident, and the fix from the first step on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from scripts import Ended, call, run_script
from steadytrain.guard.resume_plan import plan_resume
from steadytrain.replay.recorded_steps import RecordedState, RecordedSteps

SCRIPT = """
    import sys
    import torch
    from torch import nn

    torch.manual_seed(0)
    torch.set_num_threads(1)
    WIDTH, STEPS = 16, int(sys.argv[1])
    model = nn.Sequential(nn.Linear(6, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    for step in range(1, STEPS + 1):
        x = torch.randn(16, 6)
        loss = nn.functional.mse_loss(model(x), x[:, :1])
        if STEPS == 20 and step == STEPS:
            loss = loss / 0
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    torch.save(model.state_dict(), sys.argv[2])
"""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Ended:
    folder = tmp_path_factory.mktemp("stopped")
    return run_script(folder, SCRIPT, arguments=("20", str(folder / "none.pt")))


def resume(stopped: Ended, folder: Path, *options: str, script: str = SCRIPT) -> Ended:
    (bundle,) = stopped.run.incidents
    arguments = ("12", str(folder / "end.pt"))
    return run_script(folder, script, "--resume-from", str(bundle), *options, arguments=arguments)


def test_it_ends_as_a_restore_by_hand_with_the_same_change(stopped: Ended, tmp_path: Path) -> None:
    (tmp_path / "policy.toml").write_text('policy = "stop"\n[budget]\ncool-down = 5\n')
    ended = resume(stopped, tmp_path, "--with", "clip=0.05", "--policy", str(tmp_path / "policy.toml"))
    assert ended.status == 0, ended.err
    plan = plan_resume(str(stopped.run.incidents[0]), (), tmp_path)
    start = plan.snapshot.step
    assert [(one.what, one.intervention, one.step) for one in ended.run.actions] == [
        ("resumed-from", "", start),
        ("applied", "clip", start),
        ("reverted", "clip", start + 5),
    ]
    assert ended.run.scalars().steps.tolist() == list(range(start + 1, start + 13))
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    state = RecordedState(plan.snapshot)
    x = torch.randn(16, 6)
    model.load_state_dict({name: state.model_tensor(name) for name in model.state_dict()})
    (moments,) = state.optimizers
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {key: value.clone() for key, value in moments["state"][name].items()}
    first = RecordedSteps(plan.recording).step(start + 1)
    assert first is not None
    random = first.random(0, "random")
    assert random is not None
    random.restore()
    for step in range(1, 13):
        x = x if step == 1 else torch.randn(16, 6)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), x[:, :1]).backward()
        if step <= 5:
            nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    end = torch.load(tmp_path / "end.pt")
    for name, values in model.state_dict().items():
        torch.testing.assert_close(end[name], values, rtol=1e-5, atol=1e-7)


def test_another_model_is_refused_before_the_first_update(stopped: Ended, tmp_path: Path) -> None:
    ended = resume(stopped, tmp_path, script=SCRIPT.replace("WIDTH, STEPS = 16", "WIDTH, STEPS = 17"))
    assert ended.status == 2
    assert (
        "the launched script builds another model: 0.weight is torch.float32[17, 6], not torch.float32[16, 6]"
        in ended.err
    )
    assert "Traceback" not in ended.err
    assert not (tmp_path / "end.pt").exists()


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (("--resume-from", "nowhere"), "no such run or incident"),
        (("--resume-from", "{bundle}", "--with", "drop-batch"), "no live intervention makes this change"),
        (("--resume-from", "{bundle}", "--with", "clipp"), "no such fix"),
        (("--resume-from", "{bundle}", "--with", "clip=high"), "is not a number"),
        (("--resume-from", "{bundle}", "--policy", "observe"), "contradicts"),
        (("--with", "clip"), "needs --resume-from"),
    ],
)
def test_bad_input_is_one_line(stopped: Ended, tmp_path: Path, options: tuple[str, ...], line: str) -> None:
    words = [one.format(bundle=stopped.run.incidents[0]) for one in options]
    (tmp_path / "train.py").write_text("raise SystemExit('it ran')\n")
    done = call("run", "--runs-dir", str(tmp_path / "runs"), *words, str(tmp_path / "train.py"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert line in done.stderr
