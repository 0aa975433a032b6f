"""Steps of training as values: where the loss rises and what does it, cut down, and written as a script."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.repro.arguments import CannotWriteError  # noqa: E402
from steadytrain.repro.program import program_to_json  # noqa: E402
from steadytrain.repro.rise_search import CannotShowError, Captured, Rise, RunLosses, find_rise, read_captured  # noqa: E402
from steadytrain.repro.shrink_training import rows_of, smaller  # noqa: E402
from steadytrain.repro.step_capture import StepCapture, TrailMode, loss_program  # noqa: E402
from steadytrain.repro.trail import Trail, Wanted  # noqa: E402
from steadytrain.repro.training_script import write_training_script  # noqa: E402

QUIET = RunLosses(usual=1.0, spread=0.01, peak=9.0)
Change = Callable[[int, Any, Any], Any]


def _as_it_is(step: int, inputs: Any, targets: Any) -> Any:
    return inputs, targets


def captured(
    *,
    rates: tuple[float, ...] = (0.01,) * 4,
    momentum: float = 0.0,
    clip: float | None = None,
    change: Change = _as_it_is,
    between: Callable[[list[Any]], None] = lambda parameters: None,
) -> Captured:
    """A loop of some steps, captured as a replay of it would be."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=rates[0], momentum=momentum)
    parameters, steps, tensors = list(model.parameters()), [], {}
    for step, rate in enumerate(rates, start=5):
        inputs, targets = change(step, torch.randn(8, 4), torch.randn(8, 1))
        optimizer.param_groups[0]["lr"] = rate
        optimizer.zero_grad()
        trail = Trail(Wanted(sources=True))
        with TrailMode(trail):
            loss = nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
        program, weights = loss_program(trail, [loss], parameters)
        between(parameters)
        if clip is not None:
            nn.utils.clip_grad_norm_(parameters, clip)
        tensors |= {f"{step}.{name}": tensor for name, tensor in program.inputs.items()}
        if not steps:
            tensors |= {f"gradient.{at}": one.grad.clone() for at, one in enumerate(parameters) if one.grad is not None}
        group = {"lr": rate, "momentum": momentum, "parameters": [0, 1, 2, 3]}
        steps.append(
            {
                "step": step,
                "losses": [float(loss.detach())],
                "why": None,
                "program": program_to_json(program),
                "weights": weights,
                "clip": clip,
                "groups": [[group]],
            }
        )
        optimizer.step()
    document = {"why": None, "steps": steps, "optimizers": ["torch.optim.sgd.SGD"], "state": {}}
    return read_captured(document, tensors)


def run_of(found: Captured) -> RunLosses:
    return RunLosses(found.losses[0], 0.01, max(found.losses))


def a_bad_batch(step: int, inputs: Any, targets: Any) -> Any:
    return inputs, targets + 50.0 * (torch.arange(8) == 3).float()[:, None] if step == 7 else targets


def test_a_batch_that_stands_out_is_told_from_an_update() -> None:
    found = captured(change=a_bad_batch)
    rise = find_rise(found, run_of(found))
    assert (rise.shape, rise.step) == ("batch", 7)
    small, left_out = smaller(rise, lambda: False, lambda _: 0)
    assert rows_of(small.training.batches[1]) == 1
    assert rows_of(small.training.batches[0]) == 8  # ordinary rows are not chosen: that would prove anything
    assert float(small.training.batches[1]["v7"].abs().max() if "v7" in small.training.batches[1] else 50.0) >= 45.0
    assert small.high > rise.high
    assert not left_out


def test_an_update_that_is_too_large_is_told_from_its_batch() -> None:
    found = captured(rates=(0.01, 30.0, 0.01, 0.01))
    rise = find_rise(found, run_of(found))
    assert (rise.shape, rise.step, len(rise.training.batches)) == ("update", 6, 1)
    assert rise.low < 3.0 < rise.high


def test_updates_that_only_together_raise_the_loss() -> None:
    found = captured(rates=(0.9,) * 8, momentum=0.95)
    rise = find_rise(
        found, RunLosses(found.losses[0], 0.0, found.losses[0] + 1.2 * (max(found.losses) - found.losses[0]))
    )
    assert rise.shape in ("updates", "update")
    assert rise.high > rise.low


def test_noise_is_no_rise() -> None:
    found = captured()
    with pytest.raises(CannotShowError, match="neither a batch nor the updates"):
        find_rise(found, RunLosses(found.losses[0], 1.0, max(found.losses) + 1.0))
    with pytest.raises(CannotShowError, match="the first that can be replayed"):
        find_rise(found, RunLosses(0.0, 0.0, found.losses[0]))


def test_clipping_is_known_and_what_else_is_done_to_gradients_is_refused() -> None:
    assert captured(clip=0.05).training.rule.clip == 0.05

    def halve(parameters: list[Any]) -> None:
        for parameter in parameters:
            parameter.grad.mul_(0.5)

    with pytest.raises(CannotShowError, match="gradients of the captured operations differ from those of the run"):
        captured(between=halve)


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("case", ["batch", "update", "updates"])
def test_the_script_fails_with_its_own_words(
    case: str, exact: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if case == "batch":
        found = captured(change=a_bad_batch)
    elif case == "update":
        found = captured(rates=(0.01, 30.0, 0.01, 0.01), clip=100.0)
    else:
        found = captured(rates=(0.5, 0.7, 0.9, 0.9, 0.9, 0.9), momentum=0.95)
    rise = find_rise(found, run_of(found) if case != "updates" else RunLosses(0.1, 0.0, 4.0))
    script = write_training_script(rise, exact=exact)
    (tmp_path / "repro.py").write_text(script.text, encoding="utf-8")
    torch.save(dict(script.kept), tmp_path / "repro.pt")
    with pytest.raises(AssertionError, match=r"this batch stands out|raises? the loss"):
        runpy.run_path(str(tmp_path / "repro.py"), run_name="__main__")
    assert "torch.ops" not in script.text or exact
    assert float(capsys.readouterr().out.split()[-1]) == pytest.approx(rise.high, rel=1e-4)


def test_the_same_bytes_every_time() -> None:
    def made() -> str:
        found = captured(change=a_bad_batch)
        small, _ = smaller(find_rise(found, run_of(found)), lambda: False, lambda _: 0)
        return write_training_script(small, exact=False).text

    assert made() == made()


def test_the_last_part_of_a_model_where_that_is_enough() -> None:
    found = captured(rates=(0.01, 30.0, 0.01, 0.01))
    rise: Rise = find_rise(found, run_of(found))
    small, left_out = smaller(rise, lambda: False, lambda _: 99)
    assert len(small.training.program.steps) < len(rise.training.program.steps)
    assert left_out
    assert set(small.training.rule.weights) < set(rise.training.rule.weights)


def test_a_loss_that_nobody_saw_is_refused() -> None:
    trail = Trail(Wanted(sources=True))
    with pytest.raises(CannotWriteError, match="no loss was seen"):
        loss_program(trail, [torch.zeros(())], [])


def test_an_argument_that_no_script_can_hold_is_a_reason_and_no_error() -> None:
    """A tensor that the script puts over the memory of another one."""
    captured: Any = StepCapture(own_steps=SimpleNamespace(wanted=0), replayed_from=5, window=range(5, 6))
    weight = nn.Parameter(torch.ones(2))
    values = torch.tensor([1.0, 2.0])
    captured.call_begins(None, None, None, None)
    loss = (weight * torch.empty(0).set_(values.untyped_storage(), 0, (2,), (1,))).sum()
    captured.loss_seen(loss)
    loss.backward()
    measured = SimpleNamespace(losses=[3.0])
    clipping = SimpleNamespace(clipping=SimpleNamespace(limit=None))
    stream = SimpleNamespace(parameters=[weight], model=None)
    captured.forward_and_backward_ended(stream, clipping, measured)
    (step,) = captured.left(None)[0]["steps"]
    assert "set_" in step["why"]
    assert step["why"].endswith(": an argument of type UntypedStorage cannot be written into a script")
    assert step["program"] is None
