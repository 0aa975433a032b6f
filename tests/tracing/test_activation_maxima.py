"""The ladder: the largest output of every module, in order, with the dtype that it is measured against."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.tracing.activation_maxima import ActivationMaximaTaker, StepRungs, ladder_of  # noqa: E402


class Scaled(nn.Module):
    def __init__(self, factor: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.factor, self.dtype = factor, dtype

    def forward(self, inputs: Tensor) -> Tensor:
        return (inputs * self.factor).to(self.dtype)


def take(model: nn.Module, step: int, *inputs: Tensor) -> StepRungs:
    taker = ActivationMaximaTaker({module: name for name, module in model.named_modules()})
    taker.begin()
    for one in inputs:
        model(one)
    seen = taker.end(step)
    assert taker.end(step).values == {}
    assert not any(module._forward_hooks for module in model.modules())
    return seen


def test_rungs_come_in_the_order_of_the_forward_with_their_headroom() -> None:
    model = nn.Sequential(Scaled(2.0, torch.float32), Scaled(-16376.0, torch.float16))
    steps = [take(model, 1, torch.tensor([0.5, -1.0])), take(model, 2, torch.tensor([1.0, -3.0]))]
    ladder = ladder_of(steps)
    assert ladder is not None
    assert [rung.module for rung in ladder.rungs] == ["0", "1", ""]
    _, half, _ = ladder.rungs
    assert (half.kind, half.dtype, half.limit) == ("Scaled", "float16", 65504.0)
    assert half.largest == (32752.0, math.inf)
    assert half.broke
    assert half.last_finite == 32752.0
    assert half.headroom_bits == pytest.approx(1.0)


def test_of_several_calls_the_largest_counts_and_nan_beats_all() -> None:
    model = nn.Sequential(Scaled(1.0, torch.float32))
    assert take(model, 1, torch.tensor([1.0]), torch.tensor([-5.0]), torch.tensor([2.0])).values["0"][2] == 5.0
    assert math.isnan(take(model, 1, torch.tensor([math.nan]), torch.tensor([math.inf])).values["0"][2])


def test_a_module_that_is_called_twice_has_a_rung_for_each_call_in_every_micro_batch() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scaled = Scaled(2.0, torch.float32)

        def forward(self, inputs: Tensor) -> Tensor:
            return self.scaled(self.scaled(inputs))

    seen = take(Twice(), 1, torch.tensor([1.0]), torch.tensor([3.0])).values
    assert {path: value[2] for path, value in seen.items()} == {"scaled": 6.0, "scaled (call 2)": 12.0, "": 12.0}


def test_modules_without_numbers_and_empty_outputs_have_no_rung() -> None:
    class Counting(nn.Module):
        def forward(self, inputs: Tensor) -> dict[str, Tensor]:
            return {"count": torch.tensor(3), "none": inputs[:0]}

    assert take(nn.Sequential(Counting()), 1, torch.ones(2)).values == {}
    assert ladder_of([]) is None


def test_a_module_that_was_not_called_in_an_earlier_step_has_a_gap() -> None:
    model = nn.Sequential(Scaled(1.0, torch.float32))
    ladder = ladder_of([StepRungs(1, {}), take(model, 2, torch.ones(2))])
    assert ladder is not None
    assert ladder.rungs[0].largest == (None, 1.0)
