"""How a program is cut out of a traced run and made small: what stays, what is refused, and the script's text."""

from __future__ import annotations

import runpy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.repro import held_values  # noqa: E402
from steadytrain.repro.arguments import CannotWriteError, Device, Ref, from_json, source, to_json  # noqa: E402
from steadytrain.repro.operation_cone import cuts, lacks_values, program_of, wanted_by  # noqa: E402
from steadytrain.repro.program import (  # noqa: E402
    Program,
    Step,
    check_operation,
    program_from_json,
    program_to_json,
    renamed,
    run,
    short_names,
    shows_fault,
)
from steadytrain.repro.program_script import WRITTEN_OUT_MAX, save_tensors, write_script  # noqa: E402
from steadytrain.repro.shrink_program import shrink  # noqa: E402
from steadytrain.repro.trail import Trail, Wanted  # noqa: E402
from steadytrain.tracing.tensor_summary import Kinds  # noqa: E402
from steadytrain.tracing.tracer import OperationTracer  # noqa: E402

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)


def traced(forward: Callable[[], Any], wanted: Wanted | None = None, **parameters: Any) -> tuple[Trail, Any]:
    """The trail of a forward and backward, and the record that the tracer blames."""
    trail = Trail(wanted)
    tracer = OperationTracer(parameters=parameters, method="test", observer=trail)
    with tracer:
        loss = forward()
        tracer.mark_loss(loss)
        loss.backward()
    assert tracer.trouble is None
    for parameter in parameters.values():
        kept, parameter.grad = tracer.culprit(), None
    return trail, kept


def programs(trail: Trail, culprit: Any, before: int = 0) -> list[Program]:
    found = cuts(trail, culprit.number, culprit.kind, before=before)
    return [program for cut in found for program in program_of(trail, cut, culprit.kind)]


def smallest(forward: Callable[[], Any], before: int = 0, **parameters: Any) -> Program:
    """The first program that shows the fault, made small."""
    trail, culprit = traced(forward, **parameters)
    program = next(one for one in programs(trail, culprit, before) if shows_fault(one))
    small, finished = shrink(program, lambda: False)
    assert finished
    # A fused kernel on a few elements that overflow may come out otherwise by chance.
    assert any(shows_fault(small) for _ in range(3))
    return small


def operations(program: Program) -> list[str]:
    return [step.operation for step in program.steps]


def shapes(program: Program) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in program.inputs.items()}


def test_of_many_rows_the_bad_one_is_left() -> None:
    weight, batch = nn.Parameter(torch.ones(8)), torch.rand(64, 8) + 0.5
    batch[37, 5] = 0.0
    small = smallest(lambda: (batch * weight).log().sum(), weight=weight)
    assert operations(small) == ["aten.log.default"]
    assert [tensor.item() for tensor in small.inputs.values()] == [0.0]


def test_a_product_keeps_what_it_takes_to_overflow() -> None:
    weight = nn.Parameter(torch.ones(32, 16, dtype=torch.float16))
    batch = torch.full((8, 32), 9000.0, dtype=torch.float16)
    small = smallest(lambda: (batch @ weight).float().sum(), weight=weight)
    assert operations(small) == ["aten.mm.default"]
    assert shapes(small) == {"x0": (1, 8), "x1": (8, 1)}  # 7 x 9000 is in the range of float16, 8 x 9000 is not


def test_the_size_of_a_normalisation_is_not_cut_to_one() -> None:
    weight, batch = nn.Parameter(torch.ones(16)), torch.randn(8, 16)
    batch[3] = 2.0
    small = smallest(lambda: nn.functional.layer_norm(batch * weight, (16,), eps=0.0).sum(), weight=weight)
    assert operations(small) == ["aten.native_layer_norm.default"]
    assert small.inputs["x0"].tolist() == [2.0, 2.0]


def test_a_backward_is_told_by_the_operation_that_it_differentiates() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 0.0, 4.0]))
    small = smallest(lambda: weight.sqrt().sum(), weight=weight)
    assert (operations(small), small.backward, small.kind) == (["aten.sqrt.default"], True, Kinds.POSITIVE_INF)
    assert {name: tensor.tolist() for name, tensor in small.inputs.items()} == {"x0": 0.0, "g0": 1.0}


def test_a_forward_that_hides_its_infinity_comes_with_what_hides_it() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 0.0]))
    small = smallest(lambda: torch.where(weight > 0, weight.log(), 0.0).sum(), weight=weight)
    assert operations(small) == ["aten.log.default", "aten.where.self"]
    assert (small.backward, small.kind) == (True, Kinds.NAN)


def test_operations_before_it_come_along_when_asked_for_and_random_ones_do_not() -> None:
    weight = nn.Parameter(torch.zeros(4))

    def forward() -> Any:
        return nn.functional.dropout(weight + 1, 0.5).sub(2).relu().log().sum()

    for before, names in ((0, ["log"]), (2, ["sub", "relu", "log"]), (9, ["mul", "sub", "relu", "log"])):
        small = smallest(forward, before=before, weight=weight)
        assert [operation.split(".")[1] for operation in operations(small)[-len(names) :]] == names
        assert small.subject == "aten.log.default"
        assert not any("bernoulli" in operation or "dropout" in operation for operation in operations(small))


def test_a_mask_comes_with_what_put_it_there() -> None:
    weight = nn.Parameter(torch.ones(4))
    hidden = torch.tensor([[False, True, False, False], [True, True, True, True]])
    small = smallest(
        lambda: torch.softmax((weight * torch.ones(2, 4)).masked_fill(hidden, -INF), -1).sum(), weight=weight
    )
    assert operations(small) == ["aten.masked_fill.Scalar", "aten._softmax.default"]


def test_a_mask_that_was_there_before_is_put_back() -> None:
    weight, mask = nn.Parameter(torch.ones(2, 4)), torch.zeros(2, 4)
    mask[1] = -INF
    small = smallest(lambda: torch.softmax(weight + mask, -1).sum(), weight=weight)
    assert operations(small) == ["aten.masked_fill.Scalar", "aten.add.Tensor", "aten._softmax.default"]
    assert not any(bool(torch.isinf(tensor).any()) for tensor in small.inputs.values())


def test_what_was_written_in_place_is_as_it_was_before() -> None:
    weight, batch = nn.Parameter(torch.ones(3)), torch.tensor([1.0, 0.0, 3.0])

    def forward() -> Any:
        scaled = batch * weight
        scaled[1:].log_()
        return scaled.sum()

    small = smallest(forward, weight=weight)
    assert operations(small) == ["aten.log_.default"]
    assert small.inputs["x0"].item() == 0.0


def test_lists_of_tensors_lose_the_entries_that_do_not_matter() -> None:
    inputs = {f"x{at}": torch.full((2,), float(at != 3)) for at in range(6)}
    refs = [Ref(name) for name in inputs]
    results = tuple(f"y{at}" for at in range(6))
    step = Step("aten._foreach_log.default", (refs,), {}, results)
    program = Program(step.operation, (step,), inputs, (), (), "y3", Kinds.NEGATIVE_INF, frozenset(), "cpu")
    assert shows_fault(program)
    small, _ = shrink(program, lambda: False)
    assert shapes(small) == {"x3": ()}
    assert small.steps[0].results == ("y3",)
    again = renamed(small, short_names(small))
    assert (list(again.inputs), again.target) == (["x0"], "y0")
    assert shows_fault(again)


def test_a_capture_beyond_its_memory_names_what_a_second_one_has_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = nn.Parameter(torch.cat([torch.rand(100), torch.zeros(1)]))

    def forward() -> Any:
        return ((weight * 3 + 1 - 1) / 3).sqrt().sum()

    whole, culprit = traced(forward, weight=weight)
    monkeypatch.setattr(held_values, "HELD_BYTES_MAX", 600)
    first, culprit = traced(forward, weight=weight)
    found = list(cuts(first, culprit.number, culprit.kind))
    assert first.held.overflowed
    assert lacks_values(first, found)
    second, culprit = traced(forward, wanted_by(first, found), weight=weight)
    assert not lacks_values(second, found)
    assert 0 < len(second.held) < len(whole.held)
    assert any(shows_fault(program) for program in programs(second, culprit))


def test_a_program_with_an_input_that_is_not_finite_shows_nothing() -> None:
    step = Step("aten.log.default", (Ref("x0"),), {}, ("y0",))
    for value, fault in ((0.0, True), (NAN, False), (1.0, False)):
        inputs = {"x0": torch.tensor([value])}
        kind = Kinds.NAN if value != value else Kinds.NEGATIVE_INF
        assert shows_fault(Program(step.operation, (step,), inputs, (), (), "y0", kind, frozenset(), "cpu")) == fault


def test_a_value_that_was_broken_on_the_way_shows_nothing() -> None:
    """log(0) is -Inf and -Inf * 0 is NaN: the second operation would be blamed for what the first one did."""
    steps = (
        Step("aten.log.default", (Ref("x0"),), {}, ("y0",)),
        Step("aten.mul.Tensor", (Ref("y0"), Ref("x0")), {}, ("y1",)),
    )
    program = Program("aten.mul.Tensor", steps, {"x0": torch.zeros(1)}, (), (), "y1", Kinds.NAN, frozenset(), "cpu")
    assert not shows_fault(program)


def test_attention_that_may_draw_random_numbers_gets_a_seed() -> None:
    weight = nn.Parameter(torch.randn(1, 2, 8, 8) * 1e19)
    small = smallest(
        lambda: nn.functional.scaled_dot_product_attention(weight, weight * 2, weight * 3).sum(), weight=weight
    )
    assert "scaled_dot_product" in small.subject
    assert small.seeded
    assert "torch.manual_seed" in write_script(small, exact=False).text


def test_sizes_that_are_told_as_numbers_follow() -> None:
    weight = nn.Parameter(torch.full((4, 6, 8), 2.0))
    small = smallest(lambda: nn.functional.group_norm(weight, 2, eps=0.0).sum(), weight=weight)
    assert small.subject == "aten.native_group_norm.default"
    assert small.inputs["x0"].numel() <= 32


def test_operations_of_others_are_refused() -> None:
    library = torch.library.Library("steadytrain_tests", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    try:
        with pytest.raises(CannotWriteError, match="not an operation of torch but of steadytrain_tests"):
            check_operation(torch.ops.steadytrain_tests.twice.default)
        with pytest.raises(CannotWriteError, match="higher-order"):
            check_operation(torch.ops.higher_order.cond)
        assert check_operation(torch.ops.aten.log.default) == "aten.log.default"
    finally:
        library._destroy()


def test_arguments_come_back_as_they_were() -> None:
    value = [Ref("x0"), None, True, 3, 2.5, -INF, "mean", torch.float16, torch.strided, [1, [2]], {"dim": 1 + 2j}]
    assert from_json(to_json(value)) == value
    assert from_json(to_json(torch.device("cuda", 1))) == Device()
    with pytest.raises(CannotWriteError, match="Generator"):
        to_json([torch.Generator()])
    assert source([Ref("x0"), -INF, torch.float16, [1, None]]) == '[x0, float("-inf"), torch.float16, [1, None]]'


def test_a_program_comes_back_from_json() -> None:
    weight = nn.Parameter(torch.tensor([1.0, 0.0]))
    small = smallest(lambda: weight.sqrt().sum(), weight=weight)
    again = program_from_json(program_to_json(small), small.inputs)
    assert shows_fault(again)
    assert program_to_json(again) == program_to_json(small)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_numbers_in_the_script_are_the_same_to_the_bit(dtype: Any, tmp_path: Path) -> None:
    values = torch.cat([torch.randn(WRITTEN_OUT_MAX - 4) * 1e-6, torch.tensor([0.0, -0.0, 1e-7, 3e4])]).to(dtype)
    values[0] = torch.finfo(dtype).max
    assert shown(values, tmp_path).view(torch.uint8).equal(values.view(torch.uint8))


READABLE: dict[str, tuple[Callable[[Any], Any], str]] = {
    "softmax": (lambda w: torch.softmax(w.masked_fill(w < 9, -INF), -1), "torch.softmax(y0, -1)"),
    "loss": (
        lambda w: nn.functional.nll_loss(w, torch.full((4,), -100)),
        'torch.nn.functional.nll_loss(x0, x1, ignore_index=-100, reduction="mean")',
    ),
    "layer norm": (lambda w: nn.functional.layer_norm(w * 0, (6,), eps=0.0), "torch.nn.functional.layer_norm("),
    "group norm": (lambda w: nn.functional.group_norm(w * 0, 2, eps=0.0), "torch.nn.functional.group_norm("),
    "cast": (lambda w: (w + 1e6).half().float(), "x0.to(torch.float16)"),
    "in place": (lambda w: (w * 0).log_(), "y0.log_()"),
    "attention": (
        lambda w: nn.functional.scaled_dot_product_attention(w[None, None] * 1e20, w[None, None] * 1e20, w[None, None]),
        "torch.nn.functional.scaled_dot_product_attention(",
    ),
}


@pytest.mark.parametrize("case", READABLE)
def test_operations_are_called_as_people_call_them_and_do_the_same(case: str) -> None:
    forward, written = READABLE[case]
    weight = nn.Parameter(torch.randn(4, 6))
    small = smallest(lambda: forward(weight).sum(), weight=weight)
    for exact in (False, True):
        text = write_script(small, exact=exact).text
        assert (written in text) is not exact
        space: dict[str, Any] = {"__name__": "__main__"}
        with pytest.raises(AssertionError, match="out of finite inputs"):
            exec(compile(text, "repro.py", "exec"), space)


def test_equal_numbers_are_written_in_short(tmp_path: Path) -> None:
    assert shown(torch.full((4, 50), -0.0), tmp_path).signbit().all()
    assert not (tmp_path / "repro.pt").exists()
    mixed = torch.zeros(40)
    mixed[3] = -0.0
    assert shown(mixed, tmp_path).signbit().sum() == 1


def test_a_larger_tensor_lies_beside_the_script(tmp_path: Path) -> None:
    values = torch.randn(WRITTEN_OUT_MAX + 1, 3)
    assert shown(values, tmp_path).equal(values)
    assert (tmp_path / "repro.pt").is_file()
    torch.load(tmp_path / "repro.pt", weights_only=True)


def shown(values: Any, folder: Path) -> Any:
    """What the written script gives as its input."""
    step = Step("aten.neg.default", (Ref("x0"),), {}, ("y0",))
    program = Program(step.operation, (step,), {"x0": values}, (), (), "y0", Kinds.NAN, frozenset(), "cpu")
    script = write_script(program, exact=False)
    (folder / "repro.py").write_text(script.text, encoding="utf-8")
    if script.tensors:
        save_tensors(script.tensors, folder / "repro.pt")
    space: Mapping[str, Any] = runpy.run_path(str(folder / "repro.py"), run_name="repro")
    (given,) = space["inputs"]()
    assert run(program).values["y0"].equal(space["forward"](given))
    return given
