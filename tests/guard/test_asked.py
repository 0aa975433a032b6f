"""What a policy file asks for: it holds from the first step on, or the run ends before its first update."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from by_hand import policy_file
from torch import nn

import steadytrain
from gate_loops import recorded
from scripts import Ended, run_script
from steadytrain.core.errors import UsageError
from steadytrain.guard.policy_files import as_toml, read_policy

SCRIPT = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        labels = torch.randint(0, 3, (8,))
        if step == 4:
            labels[5] = 3
        loss = nn.functional.cross_entropy(model(torch.randn(8, 4)), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step + 1)
"""


def run_under(folder: Path, text: str) -> Ended:
    return run_script(folder, SCRIPT, "--policy", policy_file(folder, text))


@pytest.mark.long
def test_a_label_ends_a_script_with_status_70_and_one_line(tmp_path: Path) -> None:
    ended = run_under(tmp_path, 'always = ["check-labels"]\n')
    assert ended.status == 70
    assert ended.out.count("step") == 4
    assert "STOPPED before the loss of step 5: the label 3 in row 5 of the targets is outside [0, 3)" in ended.err
    assert "Error" not in ended.err


def test_what_the_model_or_the_optimizer_cannot_take_ends_it_with_status_2(tmp_path: Path) -> None:
    ended = run_under(tmp_path, 'always = ["qk-clip"]\n')
    assert (ended.status, ended.out) == (2, ""), ended.err
    assert "policy.toml: qk-clip: the model has no nn.MultiheadAttention" in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.parametrize(
    ("ladder", "why"),
    [
        ("raise-epsilon", "raise-epsilon: SGD has no epsilon to change"),
        ("lower-beta2", "lower-beta2: SGD has no decay of a second moment to change"),
        ("lower-momentum", "lower-momentum: SGD has no momentum to change"),
        ("dynamic-loss-scale", "dynamic-loss-scale: the training has no gradient scaler"),
    ],
)
def test_so_does_a_rung_that_cannot_be_made(ladder: str, why: str, tmp_path: Path) -> None:
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    policy = policy_file(tmp_path, f'policy = "steady"\n[ladders]\ndefault = ["{ladder}"]\n')
    before = model.weight.detach().clone()
    with pytest.raises(steadytrain.RunStopped, match=why) as stopped:
        one_step(model, optimizer, tmp_path, policy)
    assert stopped.value.code == 2
    assert torch.equal(model.weight, before)


def one_step(model: nn.Module, optimizer: torch.optim.Optimizer, folder: Path, policy: str) -> None:
    with steadytrain.watch(model, optimizer, name="run", runs_dir=folder, policy=policy, to="none"):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()


class Fixed:
    """A model under a gradient scaler whose scale the script never lets move: each of its steps overflows."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.0005)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**127, growth_interval=10**9)
        self.scaler.set_backoff_factor(1.0)

    def run(self) -> float:
        for _ in range(40):
            x = torch.randn(8, 3)
            loss = 100 * nn.functional.mse_loss(self.model(x), x.sum(1, keepdim=True))
            self.optimizer.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        return loss.item()


def test_a_fixed_loss_scale_becomes_dynamic(tmp_path: Path) -> None:
    bare, steered = Fixed(), Fixed()
    text = 'always = ["dynamic-loss-scale"]\n[interventions.dynamic-loss-scale]\nbackoff = 0.25\ninterval = 9\n'
    policy = policy_file(tmp_path, text)
    lost = bare.run()
    with steadytrain.watch(steered.model, steered.optimizer, name="run", runs_dir=tmp_path, policy=policy, to="none"):
        learned = steered.run()
    assert bare.scaler.get_scale() == 2.0**127
    assert steered.scaler.get_scale() < 2.0**125
    assert learned < 0.5 * lost
    assert (steered.scaler.get_backoff_factor(), steered.scaler.get_growth_interval()) == (0.25, 9)
    assert [action.intervention for action in recorded(tmp_path).actions] == ["dynamic-loss-scale"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('always = "clip"', "must be a list of names"),
        ('always = ["clipp"]', "did you mean clip"),
        ('always = ["roll-back"]', "needs earlier steps"),
        ('policy = "observe"\nalways = ["clip-by-z-score"]', "contradicts"),
        ("[interventions.clip-per-tensor]\ndecay = 1.5", "decay 1.5"),
        ("[interventions.clip-by-z-score]\nwarm-up = 1", "warm_up 1"),
        ("[interventions.qk-clip]\nlimit = 0", "limit 0"),
        ("[interventions.quarantine-rows]\nshare = 2.0", "share 2.0"),
        ("[interventions.shrink-embedding-gradient]\nshare = 1.0", "share 1.0"),
        ("[interventions.dynamic-loss-scale]\nbackoff = 2.0", "backoff 2.0"),
        ("[interventions.check-labels]\naccelerators = 2", "accelerators 2"),
    ],
)
def test_a_wrong_file_is_one_line(text: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=why):
        read_policy(Path(policy_file(tmp_path, text)))


def test_it_reads_as_it_is_shown(tmp_path: Path) -> None:
    text = 'always = ["clip-by-z-score", "float32"]\n[interventions.float32]\nmodule = "a.*"\n'
    policy = read_policy(Path(policy_file(tmp_path, text)))
    again = read_policy(Path(policy_file(tmp_path, as_toml(policy))))
    assert (again.always, again.settings) == (policy.always, policy.settings)
