"""Before the weights: a loss or gradient that is not finite is seen before the optimizer applies it.

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
from scripts import run_script
from steadytrain.capture.step import gate
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import Run, open_run
from watching import stopping

BAD_STEP = 4
NAN, INF = float("nan"), float("inf")


class Net(nn.Module):
    """Weights, buffers that move (BatchNorm), and random draws (dropout)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Tanh())
        self.head = nn.Linear(8, 1)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.head(self.body(inputs)).squeeze(-1)


Losses = Callable[[Net, int], "list[Tensor]"]


def healthy(model: Net) -> Tensor:
    inputs = torch.randn(8, 6)
    return (model(inputs) - inputs.sum(-1)).pow(2).mean()


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

OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "SGD with momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
    "Adam": lambda parameters: torch.optim.Adam(parameters, lr=1e-2),
    "AdamW, fused": lambda parameters: torch.optim.AdamW(parameters, lr=1e-2, fused=True),
    "AdamW with amsgrad, one by one": lambda parameters: torch.optim.AdamW(parameters, amsgrad=True, foreach=False),
    "RMSprop": lambda parameters: torch.optim.RMSprop(parameters, lr=1e-2, momentum=0.5),
}


def train(
    losses: Losses,
    *,
    make: Callable[[Any], torch.optim.Optimizer] = OPTIMIZERS["Adam"],
    steps: int = BAD_STEP + 2,
    before_step: Callable[[Net], object] = lambda model: None,
    watch: dict[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, Any], BaseException | None]:
    """Train; returns the state before the bad step, at the end, and what ended it."""
    torch.manual_seed(3)
    model = Net()
    optimizer = make(model.parameters())
    before: dict[str, Any] = {}
    ending: BaseException | None = None

    def loop() -> None:
        for step in range(1, steps + 1):
            if step == BAD_STEP:
                before.update(state(model, optimizer))
            optimizer.zero_grad()
            for loss in losses(model, step):
                loss.backward()
            before_step(model)
            optimizer.step()

    try:
        if watch is None:
            loop()
        else:
            with steadytrain.watch(model, optimizer, name="run", **watch):
                loop()
    except SystemExit as stop:
        ending = stop
    return before, state(model, optimizer), ending


def state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    return copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})


def same(one: Any, other: Any) -> bool:
    """Equal bit for bit: NaN equals NaN, -0 differs from 0."""
    if isinstance(one, Tensor):
        return (
            isinstance(other, Tensor)
            and one.dtype == other.dtype
            and one.detach().contiguous().numpy().tobytes() == other.detach().contiguous().numpy().tobytes()
        )
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def recorded(runs_dir: Path) -> Run:
    return open_run(runs_dir / "run")


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


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_kind_of_optimizer_is_stopped_in_time(name: str, tmp_path: Path) -> None:
    before, after, ending = train(
        FAULTS["loss finite, gradients NaN"], make=OPTIMIZERS[name], watch={"runs_dir": tmp_path}
    )
    assert isinstance(ending, steadytrain.RunStopped)
    assert same(before, after)


@pytest.mark.parametrize("fault", FAULTS)
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
    assert f"next                 steadytrain show {tmp_path / 'run'}" in message


# -- what is no incident -----------------------------------------------------------------------------------------------

HUGE = 3e38


def huge_but_finite(gradient: Tensor) -> Tensor:
    return torch.full_like(gradient, HUGE)


@pytest.mark.parametrize("clip", [False, True])
def test_a_finite_gradient_whose_norm_overflows_is_no_incident(clip: bool, tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-38)
    model.weight.register_hook(huge_but_finite)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(5, 4)).sum().backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    run = recorded(tmp_path)
    assert run.incidents == ()
    assert [symptom.name for symptom in run.symptoms] == []
    window = run.window()
    assert torch.from_numpy(window.gradient_norms.copy()).isfinite().all()
    assert all(math.isfinite(value) for value in window.signals["gradient_norm"])


def test_a_step_that_the_scaler_skips_is_no_incident(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for step in range(1, 7):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean()
            scaler.scale(loss * INF if step in (1, 4) else loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    run = recorded(tmp_path)
    assert run.incidents == ()
    assert run.symptoms == ()
    assert run.window().skipped.tolist() == [True, False, False, True, False, False]


def test_a_scaler_that_is_switched_off_leaves_the_gate_in_place(tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 7):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean()
            scaler.scale(loss * NAN if step == 3 else loss).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
    assert [action.step for action in recorded(tmp_path).actions] == [3]


@pytest.mark.parametrize("how", ["after backward", "after clipping"])
def test_a_script_that_throws_bad_gradients_away_itself_goes_on(how: str, tmp_path: Path) -> None:
    model = nn.Linear(4, 3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run"):
        for step in range(1, 9):
            optimizer.zero_grad()
            loss = model(torch.randn(5, 4)).pow(2).mean() * (NAN if step in (3, 4, 6) else 1)
            loss.backward()
            if how == "after clipping" and not nn.utils.clip_grad_norm_(model.parameters(), 1.0).isfinite():
                continue
            if not loss.isfinite():
                optimizer.zero_grad()
                continue
            optimizer.step()
    run = recorded(tmp_path)
    (incident,) = run.incidents
    assert open_bundle(incident).incident.step == 3
    (symptom,) = run.symptoms
    assert "at step 3; since then the script made no update with 3 of 6 batches" in symptom.message
    window = run.window()
    assert len(window) == 5
    assert all(math.isfinite(value) for name in window.signals for value in window.signals[name])
    assert window.signals["samples"].tolist() == [5] * 5


# -- afterwards --------------------------------------------------------------------------------------------------------


def test_a_loop_that_swallows_the_stop_is_refused_again(tmp_path: Path) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    refused = 0
    before: dict[str, Any] = {}
    with stopping(model, optimizer, tmp_path):
        for step in range(1, 7):
            if step == 3:
                before = state(model, optimizer)
            optimizer.zero_grad()
            (model(torch.randn(5, 4)).mean() * (NAN if step == 3 else 1)).backward()
            try:
                optimizer.step()
            except SystemExit:
                refused += 1
        raise ValueError("whatever the script makes of it")
    assert refused == 4
    assert same(before, state(model, optimizer))
    assert len(recorded(tmp_path).incidents) == 1


SWALLOWING = """
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 8):
    optimizer.zero_grad()
    (model(torch.randn(5, 4)).mean() * (float("nan") if step == 3 else 1)).backward()
    try:
        optimizer.step()
        print("applied", step)
    except {caught}:
        print("refused", step)
"""


@pytest.mark.slow
@pytest.mark.parametrize("caught", ["SystemExit", "BaseException", "Exception"])
def test_a_script_that_swallows_the_stop_still_ends_with_70(caught: str, tmp_path: Path) -> None:
    outcome = run_script(tmp_path, SWALLOWING.format(caught=caught))
    assert outcome.status == 70
    refused = [] if caught == "Exception" else [f"refused {step}" for step in range(3, 8)]
    assert outcome.out.splitlines() == ["applied 1", "applied 2", *refused]
    assert outcome.err.count("STOPPED") == 1
    assert outcome.run.ended == "stopped"


def test_a_loop_that_ends_right_after_the_bad_step_is_stopped_too(tmp_path: Path) -> None:
    """Where finding the operation needs one more lap and none comes, the refusal must still be told."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def backward(step: int) -> None:  # its frame is gone at the gate, and the loss is finite before
        loss = model(torch.randn(5, 4)).mean()
        (loss + (loss * 0).sqrt() if step == 3 else loss).backward()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, 4):
            optimizer.zero_grad()
            backward(step)
            optimizer.step()
    assert recorded(tmp_path).ended == "stopped"


def test_observe_writes_one_incident_an_episode_and_three_at_most(tmp_path: Path) -> None:
    bad = {3, 4, 5, 8, 11, 12, 15}
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with steadytrain.watch(model, optimizer, policy="observe", runs_dir=tmp_path, name="run"):
        for step in range(1, 20):
            optimizer.zero_grad()
            (model(torch.randn(5, 4)).mean() + (NAN if step in bad else 0)).backward()
            optimizer.step()
    run = recorded(tmp_path)
    assert [path.name for path in run.incidents] == ["step-000003", "step-000008", "step-000011"]
    assert len(run.window()) == 19


def test_one_look_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is read from the device in a step comes over in one copy."""
    looks: list[int] = []
    fetch = gate.fetch
    monkeypatch.setattr(gate, "fetch", lambda scalars: looks.append(len(scalars)) or fetch(scalars))
    _, _, ending = train(
        lambda model, step: [healthy(model) / 3 for _ in range(3)],
        steps=20,
        before_step=lambda model: nn.utils.clip_grad_norm_(model.parameters(), 1.0),
        watch={"runs_dir": tmp_path},
    )
    assert ending is None
    assert len(looks) == 20


def test_the_lap_leaves_the_schedule_as_it_was(tmp_path: Path) -> None:
    """The script's own loop steps its schedulers on the way round; the refused step must not count for them."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=3)
    decay = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warmup, decay], milestones=[3])
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
    before: list[Any] = []

    def schedule() -> list[Any]:
        return copy.deepcopy([part.state_dict() for part in (optimizer, scheduler, warmup, decay, plateau)])

    def backward(step: int) -> None:  # its frame is gone at the gate, and the loss is finite before
        loss = model(torch.randn(5, 4)).mean()
        (loss + (loss * 0).sqrt() if step >= 5 else loss).backward()

    with stopping(model, optimizer, tmp_path):
        for step in range(1, 9):
            if step == 5:
                before = schedule()
            optimizer.zero_grad()
            backward(step)
            optimizer.step()
            scheduler.step()
            plateau.step(float(step))
    located = open_bundle(recorded(tmp_path).incidents[0]).incident.finding.located
    assert located is not None
    assert located.phase == "backward"
    assert same(before, schedule())


def test_a_later_evaluation_of_a_closure_does_not_claim_untouched_weights(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """LBFGS moves the weights between evaluations: refusing a later one cannot take back the earlier ones."""
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5)
    inputs = torch.randn(32, 4)
    evaluations = 0

    def closure() -> torch.Tensor:
        nonlocal evaluations
        evaluations += 1
        optimizer.zero_grad()
        loss = (model(inputs) - inputs.sum(1, keepdim=True) ** 2).pow(2).mean()
        if evaluations == 2:
            loss = loss * float("nan")
        loss.backward()
        return loss

    watch = steadytrain.watch(model, optimizer, runs_dir=tmp_path)
    with pytest.raises(SystemExit):
        optimizer.step(closure)
    watch.close()
    (path,) = open_run(watch.run_dir).incidents
    incident = open_bundle(path).incident
    assert incident.action.what == "refused-rest-of-update"
    assert incident.state_note.startswith("kept as it was in the midst of step 1")
    message = capsys.readouterr().err
    assert "had moved the weights within this step already" in message
    assert "as they were before the step" not in message
    assert all(bool(torch.isfinite(parameter).all()) for parameter in model.parameters())
