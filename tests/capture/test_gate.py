"""Before the weights: the gate sees a loss or gradient that is not finite before the optimizer applies it.

A refused step leaves weights, optimizer state and buffers bit for bit as they were; under ``observe`` everything is
applied as it would be without steadytrain.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from gate_loops import BAD_STEP, INF, NAN, OPTIMIZERS, Losses, Net, healthy, recorded, same, train
from parameters import telling
from scripts import run_script
from steadytrain.storage.bundle import open_bundle
from watching import stopping


def at_bad_step(bad: Callable[[Net], Tensor]) -> Losses:
    return lambda model, step: [bad(model) if step == BAD_STEP else healthy(model)]


def root_of_zero(model: Net) -> Tensor:
    mean = healthy(model)
    return mean + (mean - mean.detach()).sqrt()


def zero_by_root_of_zero(model: Net) -> Tensor:
    mean = healthy(model)
    return mean + (mean * 0).sqrt()


def one_bad_gradient(model: Net, value: float) -> Tensor:
    """Only the gradient of the head's bias is not finite; the loss is."""
    handles = [model.head.bias.register_hook(lambda gradient: torch.full_like(gradient, value))]
    handles.append(model.head.bias.register_post_accumulate_grad_hook(lambda _: [h.remove() for h in handles] and None))
    return healthy(model)


# Each makes the losses of one step: a list of one, or of several micro-batches that are accumulated.
FAULTS: dict[str, Losses] = {
    "loss NaN": at_bad_step(lambda model: (healthy(model) * -1).log()),
    "loss Inf": at_bad_step(lambda model: healthy(model) / 0),
    "loss -Inf": at_bad_step(lambda model: -healthy(model) / 0),
    "loss NaN, gradients finite": at_bad_step(lambda model: healthy(model) + NAN),
    "loss Inf, gradients finite": at_bad_step(lambda model: healthy(model) + INF),
    "loss finite, gradients NaN": at_bad_step(zero_by_root_of_zero),
    "loss finite, gradients Inf": at_bad_step(root_of_zero),
    "one gradient NaN": at_bad_step(lambda model: one_bad_gradient(model, NAN)),
    "one gradient Inf": at_bad_step(lambda model: one_bad_gradient(model, -INF)),
    "second of three micro-batches": lambda model, step: [
        (zero_by_root_of_zero(model) if step == BAD_STEP and micro == 1 else healthy(model)) / 3 for micro in range(3)
    ],
    "NaN loss in the first of two micro-batches": lambda model, step: [
        (healthy(model) * (NAN if step == BAD_STEP and micro == 0 else 1)) / 2 for micro in range(2)
    ],
}


# -- the update is refused, and nothing was touched --------------------------------------------------------------------


@pytest.mark.parametrize("fault", FAULTS)
def test_refused_step_leaves_weights_state_and_buffers_as_they_were(fault: str, tmp_path: Path) -> None:
    before, after, ending = train(FAULTS[fault], watch={"runs_dir": tmp_path})

    assert isinstance(ending, steadytrain.RunStopped)
    assert ending.code == 70
    assert same(before["optimizer"], after["optimizer"])
    assert same(before["model"], after["model"])
    run = recorded(tmp_path)
    assert [path.name for path in run.incidents] == [f"step-{BAD_STEP:06d}"]
    assert open_bundle(run.incidents[0]).incident.action.what == "refused-update"
    assert run.window().refused.tolist() == [False] * (BAD_STEP - 1) + [True]


@pytest.mark.parametrize("name", telling(OPTIMIZERS, ["SGD with momentum", "AdamW, fused", "RMSprop"]))
def test_every_kind_of_optimizer_is_stopped_in_time(name: str, tmp_path: Path) -> None:
    before, after, ending = train(
        FAULTS["loss finite, gradients NaN"], make=OPTIMIZERS[name], watch={"runs_dir": tmp_path}
    )
    assert isinstance(ending, steadytrain.RunStopped)
    assert same(before, after)


@pytest.mark.parametrize("fault", telling(FAULTS, list(FAULTS)[::2]))
def test_observe_applies_everything_as_a_bare_run_does(fault: str, tmp_path: Path) -> None:
    _, bare, _ = train(FAULTS[fault], watch=None)
    _, watched, ending = train(FAULTS[fault], watch={"runs_dir": tmp_path, "policy": "observe"})

    assert ending is None
    assert same(bare, watched)
    run = recorded(tmp_path)
    assert len(run.incidents) == 1
    incident = open_bundle(run.incidents[0]).incident
    assert (incident.step, incident.action.what) == (BAD_STEP, "observed")
    assert len(run.window()) == BAD_STEP + 2


def test_buffers_of_every_module_that_the_step_called_are_put_back(tmp_path: Path) -> None:
    first, second = nn.BatchNorm1d(4), nn.BatchNorm1d(4)
    teacher = nn.BatchNorm1d(4)  # in training mode, called without gradients
    both = nn.ModuleList([first, second])
    optimizer = torch.optim.SGD([*both.parameters(), *teacher.parameters()], lr=0.1)
    before: dict[str, Any] = {}
    with stopping(nn.ModuleList([both, teacher]), optimizer, tmp_path):
        for step in range(1, BAD_STEP + 1):
            before = copy.deepcopy({"both": both.state_dict(), "teacher": teacher.state_dict()})
            inputs = torch.randn(8, 4)
            with torch.no_grad():
                target = teacher(inputs)
            loss = (second(first(inputs)) - target).pow(2).mean()
            optimizer.zero_grad()
            (loss * (NAN if step == BAD_STEP else 1)).backward()
            optimizer.step()
    assert same(before, {"both": both.state_dict(), "teacher": teacher.state_dict()})


@pytest.mark.slow
def test_a_script_that_saves_in_finally_saves_what_it_had_before_the_bad_step(tmp_path: Path) -> None:
    outcome = run_script(
        tmp_path,
        """
        import copy
        import torch
        from torch import nn

        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Linear(8, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)

        def state():
            parts = (model, optimizer, scheduler)
            return copy.deepcopy([part.state_dict() for part in parts])

        try:
            for step in range(1, 11):
                before = state()
                inputs = torch.randn(8, 6)
                loss = (model(inputs).squeeze(-1) - inputs.sum(-1)).pow(2).mean()
                if step == 7:
                    loss = loss + (loss * 0).sqrt()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                scheduler.step()
        finally:
            torch.save({"before": before, "after": state(), "step": step}, "saved.pt")
        """,
    )
    assert outcome.status == 70, outcome.err
    saved = torch.load(tmp_path / "saved.pt")
    assert saved["step"] == 7
    assert same(saved["before"], saved["after"])


# -- who is named ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [NAN, INF])
def test_clipping_that_spreads_one_bad_gradient_names_only_that_one(value: float, tmp_path: Path) -> None:
    before, after, ending = train(
        at_bad_step(lambda model: one_bad_gradient(model, value)),
        before_step=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        watch={"runs_dir": tmp_path},
    )
    assert isinstance(ending, steadytrain.RunStopped)
    assert same(before, after)
    run = recorded(tmp_path)
    (bad,) = open_bundle(run.incidents[0]).incident.parameters
    assert (bad.name, bad.shape, bad.count) == ("head.bias", (1,), 1)
    assert (bad.nan, bad.inf) == ((1, 0) if math.isnan(value) else (0, 1))
    window = run.window()
    finite = [name for name, norm in zip(window.tensor_names, window.gradient_norms[-1], strict=True) if norm < INF]
    assert set(window.tensor_names) - set(finite) == {"head.bias"}


def test_gradients_are_counted_exactly(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def damage(gradient: Tensor) -> Tensor:
        gradient = gradient.clone()
        gradient[0, :2], gradient[1, 0], gradient[2, 3] = NAN, INF, -INF
        return gradient

    model.weight.register_hook(damage)
    with stopping(model, optimizer, tmp_path):
        model(torch.randn(5, 4)).sum().backward()
        optimizer.step()
    (bad,) = open_bundle(recorded(tmp_path).incidents[0]).incident.parameters
    assert (bad.name, bad.nan, bad.inf, bad.count, bad.dtype) == ("weight", 2, 2, 12, "torch.float32")


def test_the_message_names_step_layer_line_parameter_and_bundle(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            optimizer.zero_grad()
            mean = healthy(model)
            loss = mean + (mean * (step != BAD_STEP)).sqrt()  # <- bites
            loss.backward()
            optimizer.step()
    lines = capsys.readouterr().err.splitlines()
    (start,) = [at for at, line in enumerate(lines) if "STOPPED" in line]
    message = "\n".join(lines[start:])
    line = 1 + next(at for at, text in enumerate(Path(__file__).read_text().splitlines()) if "# <- bites" in text)
    assert f"STOPPED before the update of step {BAD_STEP}: the gradient of body.0.weight and 5 more holds" in message
    assert "first bad operation  aten.div.Tensor made " in message
    assert "layer                (outside the model)" in message
    assert f"line                 {__file__}:{line}   loss = mean + (mean * (step != BAD_STEP)).sqrt()" in message
    assert "bad gradients        body.0.weight, body.0.bias, body.1.weight (+3 more)" in message
    assert f"bundle               {tmp_path / 'run' / 'incidents' / f'step-{BAD_STEP:06d}'}" in message
    assert f"steadytrain show {tmp_path / 'run'}" in message
