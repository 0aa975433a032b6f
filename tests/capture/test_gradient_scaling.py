"""Signals of the gradient scaler and of clipping, from real loops on the CPU, in the right order and the wrong one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.amp import GradScaler

from steadytrain.capture.tensors.gradient_scaling import CLIPS_MAX, Scaling, clip_coefficient, overflow_share, underflow
from steadytrain.capture.tensors.statistics import fetch, l2_norms

SCALE = 1024.0


class Followed:
    """Calls torch as a script does, with the events around each call that a watcher sends."""

    def __init__(self) -> None:
        self.scaling = Scaling()
        self.scalers: list[GradScaler] = []
        self.steps: list[dict[str, float | None]] = []
        self.notes: list[str] = []
        self._before: dict[int, Tensor] = {}

    def clip_norm(self, parameters: Sequence[Tensor], limit: float) -> None:
        self._clip_begins(parameters, limit)
        nn.utils.clip_grad_norm_(parameters, limit)

    def clip_value(self, parameters: Sequence[Tensor], limit: float) -> None:
        self._clip_begins(parameters, limit)
        nn.utils.clip_grad_value_(parameters, limit)

    def step(self, optimizer: torch.optim.Optimizer, scaler: GradScaler | None = None, stream: str = "main") -> None:
        gate = optimizer.register_step_pre_hook(lambda *_: self._gate(optimizer, stream, skipped=False))
        seen = len(self.steps)
        if scaler is None:
            optimizer.step()
        else:
            self.scaling.scaler_step_begins(scaler, optimizer)
            scaler.step(optimizer)
            if len(self.steps) == seen:
                self._gate(optimizer, stream, skipped=True)
            self.scaling.scaler_step_ends()
        gate.remove()

    def _clip_begins(self, parameters: Sequence[Tensor], limit: float | None) -> None:
        with_gradient = [p for p in parameters if p.grad is not None]
        for parameter, norm in zip(with_gradient, l2_norms([p.grad for p in with_gradient]), strict=True):
            self._before.setdefault(id(parameter), norm.clone())
        self.scaling.clip_begins(parameters, self.scalers, limit=limit)

    def _gate(self, optimizer: Any, stream: str, *, skipped: bool) -> None:
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        clipped = [p for p in parameters if id(p) in self._before]
        fused = getattr(optimizer, "grad_scale", None)
        divided = float(fused) if isinstance(fused, Tensor) else 1.0
        found_inf = getattr(optimizer, "found_inf", None)
        values = fetch(self.scaling.tensors())
        factor = self.scaling.norm_factor(values)
        self.steps.append(
            self.scaling.scalars(
                stream,
                values,
                before=[float(self._before.pop(id(p))) / divided / factor for p in clipped],
                applied=[norm / divided for norm in fetch(l2_norms([p.grad for p in clipped]))],
                skipped=skipped or (isinstance(found_inf, Tensor) and float(found_inf) > 0),
            )
        )
        self.notes += [note] if (note := self.scaling.take_note()) else []


def task(optimizer: Callable[..., Any] = torch.optim.SGD, **options: Any) -> tuple[nn.Module, Any]:
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    return model, optimizer(model.parameters(), lr=1e-3, **options)


def loss_of(model: nn.Module, *, huge: bool = False) -> Tensor:
    return model(torch.ones(2, 8)).pow(2).mean() * (1e38 if huge else 1.0)


def true_norm(model: nn.Module) -> float:
    twin = nn.Linear(8, 4)
    twin.load_state_dict(model.state_dict())
    loss_of(twin).backward()
    return float(nn.utils.get_total_norm([p.grad for p in twin.parameters()]))


def train(followed: Followed, *, steps: int, unscale: bool, limit: float, **options: Any) -> None:
    model, optimizer = task(**options)
    scaler = GradScaler("cpu", init_scale=SCALE)
    followed.scalers.append(scaler)
    for _ in range(steps):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        if unscale:
            scaler.unscale_(optimizer)
        followed.clip_norm(list(model.parameters()), limit)
        followed.step(optimizer, scaler)
        scaler.update()


def test_a_loop_without_scaler_and_without_clipping_has_none_of_these_signals() -> None:
    followed = Followed()
    model, optimizer = task()
    loss_of(model).backward()
    followed.step(optimizer)
    assert followed.steps == [dict.fromkeys(("loss_scale", "scaler_skips", "clip_coefficient", "clip_count"))]


def test_clipping_without_a_scaler() -> None:
    followed = Followed()
    model, optimizer = task()
    norm = true_norm(model)
    for limit in (norm / 4, 1e9, 1e9):
        optimizer.zero_grad()
        loss_of(model).backward()
        followed.clip_norm(list(model.parameters()), limit)
        followed.step(optimizer)
    coefficients = [step["clip_coefficient"] for step in followed.steps]
    assert coefficients[0] == pytest.approx(0.25, rel=1e-4)
    assert coefficients[1:] == [1.0, 1.0]
    assert [step["clip_count"] for step in followed.steps] == [1.0, 1.0, 1.0]
    assert [step["loss_scale"] for step in followed.steps] == [None] * 3
    assert not followed.notes


def test_the_count_of_clips_stays_where_a_later_step_does_not_clip() -> None:
    followed = Followed()
    model, optimizer = task()
    for clips in (False, True, False):
        optimizer.zero_grad()
        loss_of(model).backward()
        if clips:
            followed.clip_norm(list(model.parameters()), 1e-3)
        followed.step(optimizer)
    assert [step["clip_count"] for step in followed.steps] == [None, 1.0, 1.0]
    assert followed.steps[2]["clip_coefficient"] is None


def test_unscaling_before_clipping_is_right() -> None:
    followed = Followed()
    train(followed, steps=3, unscale=True, limit=0.01)
    assert followed.scaling.clipped_before_unscaling == 0
    assert not followed.notes
    assert [step["loss_scale"] for step in followed.steps] == [SCALE] * 3
    assert [step["scaler_skips"] for step in followed.steps] == [0.0] * 3
    assert followed.steps[0]["clip_coefficient"] == pytest.approx(0.01 / true_norm(task()[0]), rel=1e-3)


def test_clipping_before_unscaling_is_told_once_and_counted() -> None:
    followed = Followed()
    train(followed, steps=3, unscale=False, limit=1.0)
    assert followed.scaling.clipped_before_unscaling == 3
    (note,) = followed.notes
    assert "the loss scale of 1024" in note
    assert "the limit of 1 acts as 0.00098" in note
    assert "unscale_" in note
    # The coefficient is that of the true gradients: a norm of about 2.6 was clipped to 1/1024.
    assert followed.steps[0]["clip_coefficient"] == pytest.approx(1 / SCALE / true_norm(task()[0]), rel=1e-3)


@pytest.mark.parametrize("limit", [math.inf, SCALE * 1.0], ids=["only asks for the norm", "limit times the scale"])
def test_a_limit_that_a_scale_does_not_spoil_is_no_mistake(limit: float) -> None:
    followed = Followed()
    train(followed, steps=2, unscale=False, limit=limit)
    assert followed.scaling.clipped_before_unscaling == 0
    assert not followed.notes


def test_a_limit_that_is_no_plain_number_is_not_judged() -> None:
    followed = Followed()
    model, optimizer = task()
    scaler = GradScaler("cpu", init_scale=SCALE)
    followed.scalers.append(scaler)
    scaler.scale(loss_of(model)).backward()
    followed._clip_begins(list(model.parameters()), None)
    followed.step(optimizer, scaler)
    assert followed.scaling.clipped_before_unscaling == 0


def test_a_disabled_scaler_does_nothing_and_is_no_scaler() -> None:
    followed = Followed()
    model, optimizer = task()
    scaler = GradScaler("cpu", enabled=False)
    followed.scalers.append(scaler)
    for _ in range(2):
        optimizer.zero_grad()
        scaler.scale(loss_of(model)).backward()
        followed.clip_norm(list(model.parameters()), 0.01)
        followed.step(optimizer, scaler)
        scaler.update()
    assert followed.scaling.clipped_before_unscaling == 0
    assert followed.steps[1]["loss_scale"] is None
    assert followed.steps[1]["scaler_skips"] is None
    assert followed.steps[1]["clip_count"] == 2.0


def test_skipped_steps_are_counted_with_the_scale_that_made_them() -> None:
    followed = Followed()
    model, optimizer = task()
    scaler = GradScaler("cpu", init_scale=SCALE)
    followed.scalers.append(scaler)
    for huge in (False, True, True, False):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, huge=huge)).backward()
        scaler.unscale_(optimizer)
        followed.clip_norm(list(model.parameters()), 1e9)
        followed.step(optimizer, scaler)
        scaler.update()
    assert [step["loss_scale"] for step in followed.steps] == [SCALE, SCALE, SCALE / 2, SCALE / 4]
    assert [step["scaler_skips"] for step in followed.steps] == [0.0, 1.0, 2.0, 2.0]
    assert [step["clip_coefficient"] for step in followed.steps] == [1.0, None, None, 1.0]


def test_one_scaler_for_two_optimizers_tells_them_apart() -> None:
    followed = Followed()
    scaler = GradScaler("cpu", init_scale=SCALE)
    followed.scalers.append(scaler)
    (first, one), (second, other) = task(), task()
    for _ in range(2):
        for model, optimizer in ((first, one), (second, other)):
            optimizer.zero_grad()
            scaler.scale(loss_of(model)).backward()
        scaler.unscale_(one)
        followed.clip_norm(list(first.parameters()), 1.0)
        followed.clip_norm(list(second.parameters()), 1.0)  # the other optimizer was not unscaled
        followed.step(one, scaler, "main")
        assert followed.scaling.clipped_before_unscaling == len(followed.steps) // 2
        followed.step(other, scaler, "optimizer-2")
        scaler.update()
    assert followed.scaling.clipped_before_unscaling == 2
    assert [step["clip_count"] for step in followed.steps] == [1.0, 1.0, 2.0, 2.0]


@pytest.mark.parametrize("unscale", [True, False])
def test_a_fused_optimizer_divides_by_the_scale_itself(unscale: bool) -> None:
    followed = Followed()
    limit = 0.01 if unscale else 0.01 * SCALE
    train(followed, steps=2, unscale=unscale, limit=limit, optimizer=torch.optim.AdamW, fused=True)
    assert followed.steps[0]["clip_coefficient"] == pytest.approx(0.01 / true_norm(task()[0]), rel=1e-3)
    assert followed.scaling.clipped_before_unscaling == (0 if unscale else 2)
    assert [step["loss_scale"] for step in followed.steps] == [SCALE] * 2


def test_a_fused_optimizer_that_skips() -> None:
    followed = Followed()
    model, optimizer = task(torch.optim.AdamW, fused=True)
    scaler = GradScaler("cpu", init_scale=SCALE)
    for huge in (False, True):
        optimizer.zero_grad()
        scaler.scale(loss_of(model, huge=huge)).backward()
        followed.step(optimizer, scaler)
        scaler.update()
    assert [step["scaler_skips"] for step in followed.steps] == [0.0, 1.0]


def test_clipping_by_value() -> None:
    followed = Followed()
    model, optimizer = task()
    scaler = GradScaler("cpu", init_scale=SCALE)
    followed.scalers.append(scaler)
    scaler.scale(loss_of(model)).backward()
    followed.clip_value(list(model.parameters()), 0.1)
    followed.step(optimizer, scaler)
    assert followed.scaling.clipped_before_unscaling == 1
    assert followed.steps[0]["clip_count"] == 1.0
    coefficient = followed.steps[0]["clip_coefficient"]
    assert coefficient is not None
    assert 0.0 < coefficient < 1e-3


def test_a_wrapper_that_the_scaler_knows_as_the_optimizer() -> None:
    """Scripts of some frameworks give the scaler a wrapper around the optimizer, to unscale and to step."""

    class Wrapper:
        def __init__(self, optimizer: torch.optim.Optimizer) -> None:
            self.param_groups, self.step = optimizer.param_groups, optimizer.step

        def register_step_pre_hook(self, hook: Any) -> Any:
            return inner.register_step_pre_hook(hook)

    followed = Followed()
    model, inner = task()
    wrapper: Any = Wrapper(inner)
    scaler = GradScaler("cpu", init_scale=SCALE)
    followed.scalers.append(scaler)
    scaler.scale(loss_of(model)).backward()
    scaler.unscale_(wrapper)
    followed.clip_norm(list(model.parameters()), 1.0)
    followed.step(wrapper, scaler)
    assert followed.scaling.clipped_before_unscaling == 0
    assert followed.steps[0]["loss_scale"] == SCALE


def test_clips_that_no_step_follows_do_not_pile_up() -> None:
    scaling, model = Scaling(), nn.Linear(2, 2)
    scaler = GradScaler("cpu")
    scaler.scale(model(torch.ones(1, 2)).sum()).backward()
    for number in range(CLIPS_MAX + 5):
        scaling.clip_begins(model.parameters(), [scaler], limit=float(number))
        scaling.clip_begins(model.parameters(), [scaler], limit=float(number))
    assert len(scaling._clips) == CLIPS_MAX


@pytest.mark.parametrize(
    ("before", "applied", "coefficient"),
    [
        (2.0, 1.0, 0.5),
        (2.0, 2.0, 1.0),
        (0.0, 0.0, 1.0),
        (1.0, 1.0000001, 1.0),
        (1.0, 0.999999, 1.0),
        (math.inf, 0.0, 0.0),
    ],
)
def test_the_coefficient_of_odd_norms(before: float, applied: float, coefficient: float) -> None:
    assert clip_coefficient(before, applied) == coefficient


@pytest.mark.parametrize("before", [math.inf, math.nan])
def test_the_coefficient_of_gradients_that_are_not_finite_is_not_a_number(before: float) -> None:
    assert math.isnan(clip_coefficient(before, math.nan))


def test_overflow_is_counted_where_the_norm_says_so() -> None:
    bad = torch.tensor([1.0, math.inf, math.nan, 2.0])
    fine = torch.full((12,), 1e30)  # its norm overflows in float32, no element did
    gradients = [(0, bad), (3, fine)]
    assert overflow_share({0: math.nan, 3: math.inf}, gradients) == 2 / 16
    assert overflow_share({0: 1.0, 3: 1.0}, gradients) == 0.0  # it looks only where the norm is not finite
    assert overflow_share({}, []) is None


def share(gradients: list[Tensor], scale: float | None = None, *, carried: bool = False) -> float | None:
    found = underflow(gradients, scale=None if scale is None else torch.tensor(scale), carried=carried)
    return found.share(fetch(found.tensors))


def test_underflow_without_a_scaler_is_that_of_the_gradients_own_dtype() -> None:
    smallest = torch.finfo(torch.float32).tiny
    assert share([torch.tensor([0.0, smallest / 2, smallest, 1.0])]) == 0.5
    assert share([torch.tensor([0.0, 6e-8, 1.0, -1e-4], dtype=torch.float16)]) == 0.5
    assert share([torch.tensor([math.nan, math.inf])]) == 0.0
    assert share([]) is None


def test_underflow_under_a_scaler_is_that_of_float16_times_the_scale() -> None:
    smallest = torch.finfo(torch.float16).tiny
    values = torch.tensor([0.0, smallest / SCALE / 2, smallest / SCALE * 2, 1.0])
    assert share([values], SCALE) == 0.5
    assert share([values * SCALE], SCALE, carried=True) == 0.5


def test_underflow_of_a_large_tensor_is_estimated_from_every_column() -> None:
    gradient = torch.ones(1024, 512)
    gradient[:, 100:228] = 0.0  # a quarter of the columns
    assert share([gradient, torch.ones(0), torch.ones(512, 512).t()]) == pytest.approx(0.25 * 2 / 3, rel=0.02)
