"""The survey reports integers that do not fit their type, with their line, unless they wrap on purpose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from steadytrain.survey import wrapped_integers
from steadytrain.survey.wrapped_integers import FOUND_MAX, NAMES, WrappedIntegers, exact, wrapped

LINE = "train.py:7: total += part"


def found(name: str, *args: Any, line: str = LINE, **given: Any) -> list[dict[str, Any]] | None:
    look = WrappedIntegers()
    look.before(name, args, given)
    look.saw(name, getattr(Tensor, name)(*args, **given), line, 3, before_model=False)
    return look.found()


def small(*values: int, dtype: torch.dtype = torch.int8) -> Tensor:
    return torch.tensor(values, dtype=dtype)


BYTES = torch.tensor([10, 200], dtype=torch.uint8)


@pytest.mark.parametrize(
    ("name", "args", "example"),
    [
        ("__iadd__", (small(100, 1), small(100, 1)), [200, -56]),
        ("add", (small(100, 1), small(100, 1)), [200, -56]),
        ("add_", (small(100, 1), 100), [200, -56]),
        ("__sub__", (BYTES, BYTES.flip(0)), [-190, 66]),
        ("__rsub__", (BYTES, 100), [-100, 156]),
        ("__mul__", (small(300, 2, dtype=torch.int16), 200), [60000, -5536]),
        ("__neg__", (small(-128, 5),), [128, -128]),
        ("to", (torch.tensor([5, 300]), torch.uint8), [300, 44]),
        ("short", (torch.tensor([70000, 1]),), [70000, 4464]),
        ("type", (torch.tensor([300, 1]), "torch.ByteTensor"), [300, 44]),
        ("to", (small(-5, 200, dtype=torch.int32), torch.uint8), [-5, 251]),
        ("to", (BYTES, torch.int8), [200, -56]),
        ("type_as", (torch.tensor([300, 1]), small(0, dtype=torch.uint8)), [300, 44]),
    ],
)
def test_a_result_outside_of_its_type_is_told(name: str, args: tuple[Any, ...], example: list[int]) -> None:
    (one,) = found(name, *args) or ()
    assert (one["operation"], one["line"], one["step"]) == (name.strip("_"), LINE, 3)
    assert (one["wrapped"], one["elements"], one["example"]) == (1, 2, example)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("__iadd__", (small(100, 1), small(20, 1))),
        ("__rsub__", (torch.tensor([0, 1], dtype=torch.uint8), 1)),
        ("__add__", (torch.tensor([2**40, 1]), 2**40)),
        ("to", (torch.tensor([0.2, 255.9]), torch.uint8)),
        ("to", (torch.tensor([300.0]), torch.float16)),
        ("to", (small(5), torch.int64)),
        ("__add__", (torch.tensor([True]), torch.tensor([True]))),
        ("__add__", (small(100), torch.tensor([100]))),
        ("__mul__", (small(100), 2.5)),
    ],
)
def test_what_fits_its_type_is_none(name: str, args: tuple[Any, ...]) -> None:
    assert found(name, *args) is None


@pytest.mark.parametrize(
    "line",
    [
        "t.py:3: h = (h ^ x) * 16777619",
        "t.py:3: key = hash_of(key) + x",
        "t.py:3: total = total * 31 + x",
        "t.py:3: state = (state * a + c) & 255",
        "t.py:3: self.state = self.state * 1664525 + 1013904223",
        "t.py:3: self.head += len(rows)",
    ],
)
def test_a_line_that_wraps_on_purpose_is_none(line: str) -> None:
    assert found("__mul__", small(100), 2, line=line) is None


def test_a_function_that_wraps_on_purpose_is_none() -> None:
    def checksum(look: WrappedIntegers) -> None:
        look.saw("__mul__", small(100) * 2, LINE, 3, before_model=False)

    look = WrappedIntegers()
    look.before("__mul__", (small(100), 2), {})
    checksum(look)
    assert look.found() is None


@pytest.mark.parametrize(
    "line", ["t.py:3: total += string_ids", "t.py:3: operand += brand", "t.py:3: y = self.head(x) * 200"]
)
def test_words_that_only_contain_such_a_name_count(line: str) -> None:
    assert found("__iadd__", small(100), small(100), line=line) is not None


def test_a_sum_of_a_given_type_is_compared() -> None:
    (one,) = found("cumsum", small(30000, 30000, dtype=torch.int16), 0, dtype=torch.int16) or ()
    assert (one["wrapped"], one["example"]) == (1, [60000, -5536])
    assert found("cumsum", small(30000, 30000, dtype=torch.int16), 0) is None  # it adds in 64 bits


def test_the_share_is_of_all_integers_of_the_line() -> None:
    look = WrappedIntegers()
    for value in (1, 2, 100, 3):
        look.before("__add__", (small(value), 100), {})
        look.saw("__add__", small(value) + 100, LINE, 1, before_model=True)
    (one,) = look.found() or ()
    assert (one["wrapped"], one["elements"]) == (1, 4)


def test_few_lines_are_kept_and_counted_over_calls() -> None:
    look = WrappedIntegers()
    for number in range(FOUND_MAX + 2):
        for step in (1, 2):
            look.before("__add__", (small(100), 100), {})
            look.saw("__add__", small(100) + 100, f"t.py:{number}: x", step, before_model=True)
    listed = look.found()
    assert listed is not None
    assert [one["line"] for one in listed] == [f"t.py:{number}: x" for number in range(FOUND_MAX)]
    assert {(one["step"], one["wrapped"]) for one in listed} == {(1, 2)}


OPERATIONS: dict[str, Callable[..., Tensor]] = {
    name: getattr(Tensor, name, None) or getattr(torch, name)
    for name in sorted(NAMES - wrapped_integers.CASTS - wrapped_integers.SUMS - {"neg", "neg_", "__neg__"})
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_64_bits_hold_what_every_operation_means(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randint(-128, 128, (64,), generator=generator).to(torch.int8) for _ in range(2))
    wide = exact(name, (one, other), {})
    assert wide is not None
    assert torch.equal(wide, OPERATIONS[name](one.long(), other.long()))
    wide = exact(name, (one, 7), {"alpha": 3}) if "add" in name.strip("_") and "_" not in name else None
    assert wide is None or torch.equal(wide, one.long() + 21)


def test_another_shape_is_not_compared() -> None:
    assert wrapped(torch.ones(3).long() * 300, torch.ones(4, dtype=torch.int8)) is None
