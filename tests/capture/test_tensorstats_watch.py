"""A row of numbers for each parameter, measured before and after the update, against NumPy in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tensorstats_rows import cell, filled, measure
from torch import Tensor, nn

from hard_tensors import FLOATS, LAYOUTS, NAN, laid_out, tensors, truth, values_of
from steadytrain.capture.tensors.statistics import COLUMNS, FLOAT32_MAX, TensorWatch, sample_statistics
from steadytrain.capture.tensors.statistics.sample_chunks import plan_for
from steadytrain.capture.tensors.statistics.sample_statistics import SAMPLED, Samples, SecondMoment
from steadytrain.core.model import Reading


def expected_row(
    before: Tensor,
    after: Tensor,
    gradient: Tensor,
    moments: dict[str, Tensor | None],
    *,
    epsilon: float | None,
    bias: float,
    sample_max: int = 1 << 14,
) -> dict[str, float]:
    """Every column, by NumPy."""
    row: dict[str, float] = {}
    for kind, tensor in {"gradient": gradient, "weight": after, **moments}.items():
        facts = truth(tensor) if tensor is not None else None
        names = ("norm", "min", "max", "mean", "nonfinite")
        numbers = (facts.norm, facts.smallest, facts.largest, facts.mean, facts.nonfinite) if facts else (NAN,) * 5
        if facts and math.isnan(facts.smallest):  # nothing finite in it
            numbers = (NAN, *numbers[1:])
        row.update({f"{kind}_{name}": number for name, number in zip(names, numbers, strict=True)})
    plan = plan_for(after, sample_max)
    g, w, old = (values_of(plan.view(tensor)) for tensor in (gradient, after, before))
    with np.errstate(all="ignore"):
        wide = np.float64 if after.dtype == torch.float64 else np.float32
        update = (w.astype(wide) - old.astype(wide)).astype(np.float64)
        finite = update[np.isfinite(update)]
        row["update_norm"] = math.sqrt(np.mean(finite**2) * after.numel()) if finite.size else NAN
        row["update_min"], row["update_max"] = (finite.min(), finite.max()) if finite.size else (NAN, NAN)
        row["update_mean"] = finite.mean() if finite.size else NAN
        row["update_ratio"] = float(np.sqrt(np.sum(finite**2) / np.sum(w[np.isfinite(w)] ** 2))) if finite.size else NAN
        row["gradient_zero_share"] = float(np.mean(g == 0))
        row["gradient_subnormal_share"] = float(np.mean((g != 0) & (np.abs(g) < torch.finfo(gradient.dtype).tiny)))
        applied = np.isfinite(g) & (g != 0)
        row["unchanged_share"] = float(np.sum(applied & (w == old)) / np.float64(applied.sum()))
        second = moments["second_moment"]
        row["gradient_to_second_moment"] = row["gradient_rms_to_epsilon"] = NAN
        if second is not None:
            v = np.sqrt(values_of(plan.view(second)) / bias)
            if epsilon is not None:
                v = np.maximum(v, epsilon)
                row["gradient_rms_to_epsilon"] = row["gradient_norm"] / math.sqrt(gradient.numel()) / epsilon
            row["gradient_to_second_moment"] = float(np.sqrt(np.mean((g / v) ** 2)))
    return row


def agrees(reading: Reading, expected: dict[str, float], row: int = 0) -> None:
    assert set(reading.columns) == set(COLUMNS) == set(expected)
    for column, number in expected.items():
        found = cell(reading, column, row)
        number = min(max(number, -FLOAT32_MAX), FLOAT32_MAX)  # a NaN stays a NaN
        near = 3e-45  # two of the smallest numbers of float32
        if column.endswith("mean"):
            near += 1e-5 * abs(expected[column.replace("_mean", "_norm")])
        assert found == pytest.approx(number, rel=2e-5, abs=near, nan_ok=True), column


MAKERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any], str | None, str | None]] = {
    "adamw": (torch.optim.AdamW, {}, "exp_avg", "exp_avg_sq"),
    "amsgrad, for each": (torch.optim.Adam, {"amsgrad": True, "foreach": True}, "exp_avg", "max_exp_avg_sq"),
    "fused": (torch.optim.AdamW, {"fused": True}, "exp_avg", "exp_avg_sq"),
    "momentum": (torch.optim.SGD, {"momentum": 0.9}, "momentum_buffer", None),
    "plain": (torch.optim.SGD, {}, None, None),
    "rmsprop": (torch.optim.RMSprop, {}, None, "square_avg"),
}


@pytest.mark.parametrize("sample_max", [1 << 14, 640])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("maker", MAKERS)
def test_every_column(maker: str, dtype: torch.dtype, sample_max: int) -> None:
    make, options, first, second = MAKERS[maker]
    parameters = [nn.Parameter(filled(shape, dtype, seed)) for seed, shape in enumerate([(40, 90), (5,), (), (0,)])]
    optimizer = make(parameters, lr=1e-3, **options)
    for step in range(2):
        for at, parameter in enumerate(parameters):
            parameter.grad = filled(tuple(parameter.shape), dtype, 10 * step + at) * 1e-2
        if step == 0:
            optimizer.step()
    parameters[0].grad[:, :7] = 0.0  # type: ignore[index]
    parameters[0].grad[0, 8] = torch.finfo(dtype).tiny / 4  # type: ignore[index]
    before = [parameter.detach().clone() for parameter in parameters]
    gradients = [parameter.grad.clone() for parameter in parameters if parameter.grad is not None]
    reading = measure(parameters, optimizer, sample_max=sample_max)
    for at, parameter in enumerate(parameters[:3]):
        state = optimizer.state[parameter]
        epsilon = optimizer.param_groups[0].get("eps")
        held = float(torch.tensor(epsilon, dtype=dtype)) if epsilon else None
        row = expected_row(
            before[at],
            parameter.detach(),
            gradients[at],
            {"first_moment": state.get(first), "second_moment": state.get(second)},
            epsilon=epsilon,
            bias=1 - 0.999**2 if second and "exp" in second else 1.0,
            sample_max=sample_max,
        )
        if held == 0.0:
            row["gradient_rms_to_epsilon"] = NAN
        elif held:
            row["gradient_rms_to_epsilon"] *= epsilon / held
        agrees(reading, row, at)
    empty = {name: cell(reading, name, 3) for name in reading.columns}
    assert all(math.isnan(number) or name.endswith("nonfinite") for name, number in empty.items())


@given(
    gradient=tensors(layouts=("contiguous",)),
    seed=st.integers(0, 9),
    scale=st.sampled_from((1e-3, 1.0, 1e30)),
    step=st.sampled_from((0.0, 1e-9, 1e-3)),
    layout=st.sampled_from([layout for layout in LAYOUTS if layout not in ("expanded", "empty")]),
)
@settings(max_examples=200)
def test_any_gradient_and_any_layout(gradient: Tensor, seed: int, scale: float, step: float, layout: str) -> None:
    gradient = laid_out(gradient, layout)
    assume(gradient.numel())
    assume(gradient.dtype != torch.float16 or scale < 100)
    parameter = nn.Parameter(
        torch.empty_like(gradient).copy_(filled(tuple(gradient.shape), gradient.dtype, seed) * scale)
    )
    parameter.grad = gradient
    before = parameter.detach().clone()
    reading = measure([parameter], torch.optim.SGD([parameter], lr=step))
    none: dict[str, Tensor | None] = {"first_moment": None, "second_moment": None}
    agrees(reading, expected_row(before, parameter.detach(), gradient, none, epsilon=None, bias=1.0))


@given(
    gradients=tensors(layouts=("contiguous",)),
    seed=st.integers(0, 99),
    lost=st.floats(0, 1),
    bias=st.sampled_from((0.5, 1.0, 0.0)),
)
@settings(max_examples=200)
def test_both_paths_compute_the_same_of_samples(gradients: Tensor, seed: int, lost: float, bias: float) -> None:
    count = gradients.numel()
    assume(count)
    wide = torch.float64 if gradients.dtype == torch.float64 else torch.float32
    before = filled((2, count), gradients.dtype, seed)
    after = torch.where(
        torch.rand(2, count, generator=torch.Generator().manual_seed(seed)) < lost, before, before * 1.01
    )
    second = [SecondMoment(filled((count,), wide, seed).square(), bias, 1e-8), None]
    samples = Samples(
        before=before,
        gradients=torch.stack([gradients, gradients.flip(0)]).to(wide),
        after=list(after.to(gradients.dtype)),
        counts=[count, 3 * count],
        smallest_normal=[torch.finfo(gradients.dtype).tiny, None],
        second=second,
        scale=2.0,
    )
    here, there = samples.columns().numpy(), sample_statistics.on_device(samples).numpy()
    for place, name in enumerate(SAMPLED):
        near = 1e-6 * abs(here[:, SAMPLED.index("update_max")]).max() if name == "update_mean" else 1e-44
        for row in range(2):
            a, b = (min(max(numbers[row, place], -FLOAT32_MAX), FLOAT32_MAX) for numbers in (here, there))
            assert a == pytest.approx(b, rel=1e-5, abs=near, nan_ok=True), name


def test_lost_updates_of_bfloat16() -> None:
    """Weights near 0.02 and updates of 3e-5: most of them are lost in bfloat16, none in float32."""
    shares = {}
    for dtype in (torch.bfloat16, torch.float32):
        parameter = nn.Parameter((filled((200, 500), torch.float32) * 0.02).to(dtype))
        parameter.grad = filled((200, 500), dtype, 1)
        reading = measure([parameter], torch.optim.AdamW([parameter], lr=3e-5, weight_decay=0.0))
        shares[dtype] = cell(reading, "unchanged_share")
    assert shares[torch.bfloat16] == pytest.approx(0.7, abs=0.05)
    assert shares[torch.float32] < 0.01


def test_a_second_moment_that_lags_is_seen() -> None:
    parameter = nn.Parameter(filled((64, 64), torch.float32))
    optimizer = torch.optim.AdamW([parameter], betas=(0.9, 0.999))
    lags = []
    for step in range(60):
        parameter.grad = filled((64, 64), torch.float32, step) * (20.0 if step == 59 else 1.0)
        lags.append(cell(measure([parameter], optimizer), "gradient_to_second_moment"))
    assert 0.9 < lags[58] < 1.1
    assert lags[59] > 2.3  # the level from which StableAdamW speaks of a lag


def test_a_fused_optimizer_is_told_the_scale() -> None:
    gradient = filled((30, 30), torch.float32)
    readings = []
    for scale in (1.0, 1024.0):
        parameter = nn.Parameter(filled((30, 30), torch.float32, 1))
        parameter.grad = gradient * scale
        optimizer = torch.optim.AdamW([parameter], fused=True)
        optimizer.grad_scale = torch.tensor(scale)  # type: ignore[attr-defined]
        readings.append(measure([parameter], optimizer, scale=scale))
    assert readings[0].values == pytest.approx(readings[1].values, rel=1e-5, nan_ok=True)


def test_without_a_gradient_weights_and_moments_are_still_told() -> None:
    parameters = [nn.Parameter(filled((3, 4), torch.float32, seed)) for seed in range(2)]
    parameters[0].grad = filled((3, 4), torch.float32)
    reading = measure(parameters, torch.optim.AdamW(parameters))
    of_second = {name: cell(reading, name, 1) for name in reading.columns}
    assert of_second["weight_norm"] == pytest.approx(float(parameters[1].detach().norm()))
    assert of_second["update_norm"] == 0.0
    assert all(math.isnan(value) for name, value in of_second.items() if name.startswith("gradient"))
    assert math.isnan(of_second["unchanged_share"])
    assert not math.isnan(cell(reading, "gradient_to_second_moment", 0))


def test_kinds_that_are_left_out_are_not_read() -> None:
    parameter = nn.Parameter(filled((3, 4), torch.float32))
    parameter.grad = filled((3, 4), torch.float32)
    optimizer = torch.optim.AdamW([parameter])
    watch = TensorWatch(["p"], [parameter])
    watch.before_update()
    optimizer.step()
    reading = watch.after_update([optimizer], kinds=["weight"]).result()
    assert not math.isnan(cell(reading, "weight_norm"))
    assert not math.isnan(cell(reading, "gradient_norm"))
    assert not math.isnan(cell(reading, "gradient_to_second_moment"))
    assert math.isnan(cell(reading, "first_moment_norm"))
    assert math.isnan(cell(reading, "second_moment_norm"))


def test_a_look_after_alone_tells_of_weights_and_moments() -> None:
    parameter = nn.Parameter(filled((3, 4), torch.float32))
    parameter.grad = filled((3, 4), torch.float32)
    optimizer = torch.optim.AdamW([parameter])
    watch = TensorWatch(["p"], [parameter])
    watch.before_update()
    watch.forget()
    optimizer.step()
    reading = watch.after_update([optimizer]).result()
    assert not math.isnan(cell(reading, "weight_norm"))
    assert not math.isnan(cell(reading, "second_moment_norm"))
    assert math.isnan(cell(reading, "gradient_norm"))
    assert math.isnan(cell(reading, "update_norm"))


@pytest.mark.parametrize("change", ["shape", "dtype", "before the look after"])
def test_a_parameter_that_changes_is_measured_as_it_is(change: str) -> None:
    parameter = nn.Parameter(filled((30, 4), torch.float32))
    watch = TensorWatch(["p"], [parameter])
    for step in range(3):
        parameter.grad = filled(tuple(parameter.shape), parameter.dtype, step)
        watch.before_update()
        if step == 1 and change == "before the look after":
            parameter.data = filled((5, 5), torch.float64)
        reading = watch.after_update([]).result()
        assert cell(reading, "weight_norm") == pytest.approx(float(parameter.detach().double().norm()), rel=1e-3)
        assert math.isnan(cell(reading, "update_norm")) == (step == 1 and change == "before the look after")
        if step == 1:
            parameter.grad = None
            parameter.data = filled((7, 3), torch.float32) if change == "shape" else parameter.data.bfloat16()
