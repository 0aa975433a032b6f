"""A row of numbers for each parameter, from looks before and after the update, against NumPy in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from hard_tensors import FLOATS, INF, LAYOUTS, NAN, laid_out, tensors, truth, values_of
from steadytrain.capture.tensors.statistics import COLUMNS, FLOAT32_MAX, TensorWatch, sample_statistics
from steadytrain.capture.tensors.statistics.sample_chunks import plan_for
from steadytrain.capture.tensors.statistics.sample_statistics import SAMPLED, Samples, SecondMoment
from steadytrain.core.model import Reading


def cell(reading: Reading, column: str, row: int = 0) -> float:
    return float(reading.values[row, reading.columns.index(column)])


def measure(
    parameters: list[nn.Parameter], optimizer: torch.optim.Optimizer, *, scale: float = 1.0, **sizes: int
) -> Reading:
    """A look before, the step, a look after."""
    watch = TensorWatch([f"p{at}" for at in range(len(parameters))], parameters, **sizes)
    watch.before_update(scale=scale)
    optimizer.step()
    readback = watch.after_update([optimizer])
    assert readback.ready()
    return readback.result()


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


def filled(shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


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


SPARSE = torch.sparse_coo_tensor([[0, 2]], [[3.0, 0.0], [4.0, INF]], (6, 2), check_invariants=True)


def odd(name: str) -> tuple[Tensor, Tensor | None]:
    """A parameter of a kind that needs care, and its gradient."""
    if name == "sparse gradient":
        return nn.Parameter(filled((6, 2), torch.float32)), SPARSE
    if name == "complex":
        return nn.Parameter(torch.complex(*filled((2, 4, 3), torch.float32))), torch.full((4, 3), 3 + 4j)
    if name == "meta":
        return nn.Parameter(torch.empty(3, device="meta")), None
    if name == "integer":
        return torch.tensor([1, 2, 3]), None
    if name == "lazy":
        return nn.LazyLinear(3).weight, None
    if name == "quantised":
        return torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), None
    return nn.Parameter(torch.ones(3).expand(4, 3)), torch.ones(4, 3)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "weight_norm", "gradient_norm", "noted"),
    [
        ("sparse gradient", None, 5.0, "sparse"),
        ("complex", None, math.sqrt(12 * 25), None),
        ("expanded", math.sqrt(12), math.sqrt(12), None),
        ("meta", NAN, NAN, "no plain floats"),
        ("integer", NAN, NAN, "no plain floats"),
        ("lazy", NAN, NAN, "no plain floats"),
        ("quantised", NAN, NAN, "no plain floats"),
    ],
)
def test_odd_tensors_are_handled_or_named(
    name: str, weight_norm: float | None, gradient_norm: float, noted: str | None
) -> None:
    parameter, gradient = odd(name)
    if gradient is not None:
        parameter.grad = gradient
    plain = nn.Parameter(torch.full((3,), 2.0))
    plain.grad = torch.ones(3)
    watch = TensorWatch(["odd", "plain"], [parameter, plain])
    for _ in range(2):
        watch.before_update()
        reading = watch.after_update([]).result()
    if weight_norm is None:
        weight_norm = float(parameter.detach().norm())
    assert cell(reading, "weight_norm") == pytest.approx(weight_norm, rel=1e-6, nan_ok=True)
    assert cell(reading, "gradient_norm") == pytest.approx(gradient_norm, rel=1e-6, nan_ok=True)
    assert cell(reading, "weight_norm", 1) == pytest.approx(math.sqrt(12))
    notes = watch.take_notes()
    assert [noted is not None and noted in note for note in notes] == ([True] if noted else [])
    assert watch.take_notes() == []


def test_wrappers_that_keep_no_values_are_named() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = nn.Parameter(torch.ones(3))
    watch = TensorWatch(["fake"], [fake])
    watch.before_update()
    assert np.isnan(watch.after_update([]).result().values).all()
    assert "fake holds no plain floats" in watch.take_notes()[0]


@pytest.fixture
def one_rank() -> Iterator[None]:
    import torch.distributed as distributed

    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
def test_sharded_parameters_give_their_local_part(one_rank: None) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (1,))
    readings = []
    for spread in (lambda tensor: tensor, lambda tensor: distribute_tensor(tensor, mesh, [Shard(0)])):
        parameter = nn.Parameter(spread(filled((30, 5), torch.float32)))
        parameter.grad = spread(filled((30, 5), torch.float32, 1))
        readings.append(measure([parameter], torch.optim.AdamW([parameter])).values)
    assert np.array_equal(*readings)


def test_epsilon_that_its_dtype_cannot_hold_is_named() -> None:
    parameter = nn.Parameter(filled((3, 4), torch.float16))
    parameter.grad = filled((3, 4), torch.float16)
    optimizer = torch.optim.AdamW([parameter], eps=1e-8)
    watch = TensorWatch(["p"], [parameter])
    watch.before_update()
    optimizer.step()
    assert math.isnan(cell(watch.after_update([optimizer]).result(), "gradient_rms_to_epsilon"))
    (note,) = watch.take_notes()
    assert "epsilon 1e-08 is zero in torch.float16" in note


def test_nothing_of_the_users_is_touched() -> None:
    model = nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Linear(200, 3))
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters)
    model(torch.ones(4, 300)).sum().backward()
    optimizer.step()
    seen = copy.deepcopy((model.state_dict(), optimizer.state_dict(), [p.grad for p in parameters]))
    versions = [(p._version, p.grad._version, p.data_ptr()) for p in parameters if p.grad is not None]
    states = [tensor for state in optimizer.state.values() for tensor in state.values()]
    state_versions = [tensor._version for tensor in states]
    random = torch.get_rng_state()
    watch = TensorWatch([str(at) for at in range(len(parameters))], parameters, sample_max=640)
    watch.before_update()
    watch.after_update([optimizer]).result()
    assert torch.equal(torch.get_rng_state(), random)
    assert [(p._version, p.grad._version, p.data_ptr()) for p in parameters if p.grad is not None] == versions
    assert [tensor._version for tensor in states] == state_versions
    now = (model.state_dict(), optimizer.state_dict(), [p.grad for p in parameters])
    flat, flat_now = (torch.utils._pytree.tree_leaves(everything) for everything in (seen, now))
    assert all(torch.equal(a, b) if isinstance(a, Tensor) else a == b for a, b in zip(flat, flat_now, strict=True))
    assert all(p.grad is not None and p.grad.grad_fn is None and p.requires_grad for p in parameters)
    assert set(optimizer.state) == set(parameters)


@pytest.mark.parametrize(
    "mode",
    [
        lambda: torch.inference_mode(),
        lambda: torch.autocast("cpu", torch.bfloat16),
        lambda: torch.device("meta"),
        lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: 1 / 0),
    ],
    ids=["inference", "autocast", "device", "saved tensors"],
)
def test_modes_of_the_script_change_no_number(mode: Callable[[], Any]) -> None:
    readings = []
    for context in (None, mode):
        parameters = [nn.Parameter(filled((400, 50), torch.float32)), nn.Parameter(filled((7,), torch.float32))]
        for parameter in parameters:
            parameter.grad = filled(tuple(parameter.shape), torch.float32, 1)
        optimizer = torch.optim.AdamW(parameters)
        watch = TensorWatch(["a", "b"], parameters)
        for _ in range(2):  # what is kept from the first look must be usable in the second
            if context is None:
                watch.before_update()
            else:
                with context():
                    watch.before_update()
            optimizer.step()
            if context is None:
                reading = watch.after_update([optimizer]).result()
            else:
                with context():
                    reading = watch.after_update([optimizer]).result()
        watch.before_update()
        readings.append(reading)
    assert np.array_equal(readings[0].values, readings[1].values, equal_nan=True)


def test_defaults_of_the_script_change_no_number() -> None:
    parameter = nn.Parameter(filled((400, 50), torch.float32))
    parameter.grad = filled((400, 50), torch.float32, 1)
    watch = TensorWatch(["p"], [parameter])
    watch.before_update()
    expected = watch.after_update([]).result().values
    try:
        torch.set_default_dtype(torch.float16)
        torch.use_deterministic_algorithms(True)
        watch = TensorWatch(["p"], [parameter])
        watch.before_update()
        assert np.array_equal(watch.after_update([]).result().values, expected, equal_nan=True)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)


def test_a_dispatch_mode_of_the_script_sees_nothing() -> None:
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[str] = []

    class Operations(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    class Functions(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(str(func))
            return func(*args, **(kwargs or {}))

    parameter = nn.Parameter(filled((30, 5), torch.float32))
    parameter.grad = filled((30, 5), torch.float32, 1)
    watch = TensorWatch(["p"], [parameter])
    with Operations():
        watch.before_update()
        watch.after_update([]).result()
    assert calls == []
    with Functions():
        watch.before_update()
        watch.after_update([]).result()
    assert [call for call in calls if "__get__" not in call] == []  # attributes, no operation


def test_what_is_kept_is_counted() -> None:
    parameters = [nn.Parameter(torch.ones(1000, 100)), nn.Parameter(torch.ones(7, dtype=torch.bfloat16))]
    watch = TensorWatch(["a", "b"], parameters)
    assert watch.held_bytes == 0
    watch.before_update()
    assert watch.held_bytes == 2 * 4 * plan_for(parameters[0]).length + 7 * (2 + 4)
    assert all(column in COLUMNS for column in SAMPLED)
