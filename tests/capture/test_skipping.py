"""The policy ``skip``: a bad update is skipped, nothing of the step stays, and the training goes on."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadytrain
from gate_loops import BAD_STEP, NAN, OPTIMIZERS, Net, healthy, recorded, same, state
from parameters import telling
from steadytrain.capture.step.skipping import without_parameters
from watching import stopping

STEPS = 12
MORE = {
    "Adagrad": lambda parameters: torch.optim.Adagrad(parameters, lr=1e-2),
    "Adafactor": lambda parameters: torch.optim.Adafactor(parameters),
    "NAdam": lambda parameters: torch.optim.NAdam(parameters),
    "Rprop": lambda parameters: torch.optim.Rprop(parameters),
}


class CountsItself(torch.optim.Optimizer):
    """An optimizer of the script: it counts in its group and in itself, and reads its first parameter."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 1e-2, "count": 0, "total": torch.zeros(())})
        self.calls = 0

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.calls += 1
        for group in self.param_groups:
            group["count"] += 1
            group["total"] += 1
            assert group["params"][0].dtype == torch.float32
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter -= group["lr"] / group["count"] * parameter.grad


def train(
    make: Any,
    bad: set[int],
    *,
    leave: bool = False,
    closed: bool = False,
    watch: dict[str, Any] | None = None,
    broken: Any = lambda loss: loss * NAN,
) -> tuple[dict[str, Any], BaseException | None]:
    """Trains with a schedule. In the steps ``bad`` the loss is not finite, or with ``leave`` there is no step.

    ``closed``: the optimizer calls forward and backward itself, as Lightning lets it.
    """
    torch.manual_seed(3)
    model = Net()
    optimizer = make(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    ending: BaseException | None = None

    def evaluate(step: int) -> Tensor:
        loss = healthy(model)
        loss = broken(loss) if step in bad else loss
        loss.backward()
        return loss

    def loop() -> None:
        for step in range(1, STEPS + 1):
            optimizer.zero_grad()
            if step in bad and leave:
                before = copy.deepcopy(model.state_dict())
                healthy(model)  # the same random draws
                model.load_state_dict(before)
            else:
                if closed:
                    optimizer.step(lambda at=step: evaluate(at))
                else:
                    evaluate(step)
                    optimizer.step()
            schedule.step()

    try:
        if watch is None:
            loop()
        else:
            with steadytrain.watch(model, optimizer, name="run", **watch):
                loop()
    except SystemExit as stop:
        ending = stop
    return {**state(model, optimizer), "schedule": schedule.state_dict(), "own": getattr(optimizer, "calls", 0)}, ending


@pytest.mark.parametrize("name", telling([*OPTIMIZERS, *MORE], ["SGD with momentum", "AdamW, fused", "NAdam", "Rprop"]))
def test_the_run_ends_as_one_that_never_made_the_step(name: str, tmp_path: Path) -> None:
    make, bad = {**OPTIMIZERS, **MORE}[name], {2, BAD_STEP, BAD_STEP + 1}
    skipped, ending = train(make, bad, watch={"runs_dir": tmp_path, "policy": "skip"})
    assert ending is None
    assert same(skipped, train(make, bad, leave=True)[0])
    run = recorded(tmp_path)
    assert [(action.step, action.what) for action in run.actions] == [(step, "skipped-update") for step in sorted(bad)]
    assert run.facts["skipped_updates"] == 3
    window = run.scalars(run.streams()[0])
    assert set(window.steps[window.refused].tolist()) == bad
    assert [path.name for path in run.incidents] == ["step-000002", f"step-{BAD_STEP:06}"]  # one a stretch


@pytest.mark.parametrize("name", telling([*OPTIMIZERS, *MORE], ["SGD with momentum", "Adam", "Adafactor"]))
def test_a_step_with_a_closure_is_skipped_alike(name: str, tmp_path: Path) -> None:
    make, bad = {**OPTIMIZERS, **MORE}[name], {2, BAD_STEP, BAD_STEP + 1}
    skipped, ending = train(make, bad, closed=True, watch={"runs_dir": tmp_path, "policy": "skip"})
    assert ending is None
    assert same(skipped, train(make, bad, leave=True)[0])
    assert [action.step for action in recorded(tmp_path).actions] == sorted(bad)


def test_an_optimizer_of_the_script_keeps_its_counts(tmp_path: Path) -> None:
    skipped, ending = train(CountsItself, {BAD_STEP}, watch={"runs_dir": tmp_path, "policy": "skip"})
    assert ending is None
    assert same(skipped, train(CountsItself, {BAD_STEP}, leave=True)[0])
    assert skipped["own"] == STEPS - 1


def test_a_healthy_run_is_not_touched(tmp_path: Path) -> None:
    watched, _ = train(OPTIMIZERS["Adam"], set(), watch={"runs_dir": tmp_path, "policy": "skip"})
    assert same(watched, train(OPTIMIZERS["Adam"], set())[0])
    assert recorded(tmp_path).actions == ()


def test_too_many_in_a_row_stop_the_run(tmp_path: Path) -> None:
    watch = {"runs_dir": tmp_path, "policy": "skip", "max_skips": 2}
    _, ending = train(OPTIMIZERS["Adam"], {2, 3, 6, 7, 8}, watch=watch)
    assert isinstance(ending, steadytrain.RunStopped)
    actions = [(action.step, action.what) for action in recorded(tmp_path).actions]
    assert actions == [*((step, "skipped-update") for step in (2, 3, 6, 7)), (8, "refused-update")]


def test_damaged_weights_are_not_skipped_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def spoil(loss: Tensor) -> Tensor:
        model.head.bias.data.fill_(NAN)
        return loss * NAN

    torch.manual_seed(0)
    model = Net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    with stopping(model, optimizer, tmp_path, policy="skip"):
        for step in range(1, 4):
            optimizer.zero_grad()
            loss = healthy(model)
            (spoil(loss) if step == 2 else loss).backward()
            optimizer.step()
    assert "step 2 cannot be skipped: the weights hold NaN or Inf already" in capsys.readouterr().err


@pytest.mark.parametrize(("kind", "why"), [("closure", "evaluates a closure"), ("wrapper", "inside its own step")])
def test_what_cannot_be_skipped_exactly_stops_the_run(
    kind: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Wrapper(torch.optim.Optimizer):
        def __init__(self, inner: torch.optim.Optimizer) -> None:
            self.inner = inner
            super().__init__([p for group in inner.param_groups for p in group["params"]], {"lr": 1e-2})

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            self.inner.step()

    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    inner = torch.optim.SGD(model.parameters(), lr=1e-2)
    optimizer = Wrapper(inner) if kind == "wrapper" else torch.optim.LBFGS(model.parameters(), max_iter=2)

    def evaluate() -> Tensor:
        optimizer.zero_grad()
        loss = model(torch.full((4, 3), NAN)).mean()
        loss.backward()
        return loss

    weights = copy.deepcopy(model.state_dict())
    with stopping(model, optimizer, tmp_path, policy="skip"):
        if kind == "wrapper":
            evaluate()
            optimizer.step()
        else:
            optimizer.step(evaluate)  # type: ignore[arg-type]
    assert same(weights, model.state_dict())
    assert why in capsys.readouterr().err


def test_two_optimizers_of_one_step_are_skipped_together(tmp_path: Path) -> None:
    def run(leave: bool, **watch: Any) -> dict[str, Any]:
        torch.manual_seed(0)
        model = Net()
        first = torch.optim.SGD(model.body.parameters(), lr=0.1, momentum=0.9)
        second = torch.optim.Adam(model.head.parameters(), lr=0.1)

        def loop() -> None:
            for step in range(1, 9):
                loss = healthy(model)
                first.zero_grad()
                second.zero_grad()
                if step == 6:
                    loss = loss * NAN
                loss.backward()
                if not (leave and step == 6):
                    first.step()
                    second.step()

        if leave:
            loop()
        else:
            with steadytrain.watch(model, first, name="run", runs_dir=tmp_path, policy="skip"):
                loop()
        return {"model": dict(model.named_parameters()), "first": first.state_dict(), "second": second.state_dict()}

    assert same(run(leave=False), run(leave=True))


def test_the_copy_of_an_optimizer_holds_nothing_of_the_scripts() -> None:
    model = Net()
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    healthy(model).backward()
    optimizer.step()
    before = copy.deepcopy(optimizer.state_dict())
    alone = without_parameters(optimizer)
    alone.step()
    assert same(before, optimizer.state_dict())
    held = {id(parameter) for group in alone.param_groups for parameter in group["params"]}
    assert not held & {id(parameter) for parameter in model.parameters()}
    assert not alone.state
