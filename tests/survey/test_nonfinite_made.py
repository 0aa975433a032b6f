"""The script's own operations that make a non-finite number out of finite ones."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from steadytrain.survey.nonfinite_made import MADE_MAX, NonfiniteMade


def made(name: str, *args: object, **given: object) -> NonfiniteMade:
    seen = NonfiniteMade()
    function = getattr(torch, name)
    seen.saw(name, args, given, function(*args, **given), "train.py:4: x", 7)
    return seen


@pytest.mark.parametrize(
    ("name", "args", "result"),
    [
        ("div", (torch.zeros(2), torch.zeros(2)), "NaN"),
        ("div", (torch.ones(2), 0.0), "Inf"),
        ("log", (torch.zeros(1),), "Inf"),
        ("mean", (torch.zeros(0),), "NaN"),
        ("atanh", (torch.ones(1),), "Inf"),
    ],
)
def test_it_is_named_with_its_line_and_step(name: str, args: tuple[object, ...], result: str) -> None:
    one = made(name, *args).found[0]
    assert (one["operation"], one["line"], one["step"], one["made"]) == (name, "train.py:4: x", 7, result)


def test_the_few_rows_are_told() -> None:
    norms = torch.tensor([[1.0], [0.0], [2.0], [3.0]])
    one = made("div", norms.expand(4, 3) * 0 + norms, norms).found[0]
    assert (one["rows"], one["of"]) == ([1], 4)
    everywhere = made("div", torch.zeros(4, 2), torch.zeros(4, 2)).found[0]
    assert everywhere["rows"] == []
    assert made("mean", torch.zeros(0)).found[0]["of"] == 0


def test_what_passes_on_a_bad_number_made_none() -> None:
    bad = torch.tensor([float("nan")])
    assert made("div", bad, torch.ones(1)).found == []
    assert made("div", torch.ones(1), torch.ones(1)).found == []
    assert made("div", torch.ones(1, dtype=torch.int64), torch.ones(1)).found == []


def test_the_list_is_bounded() -> None:
    seen = NonfiniteMade()
    for step in range(2 * MADE_MAX):
        seen.saw("log", (torch.zeros(1),), {}, torch.log(torch.zeros(1)), "train.py:4: x", step)
    assert len(seen.found) == MADE_MAX


def test_what_made_the_divisor_is_told() -> None:
    seen, x = NonfiniteMade(), torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    norm = x.norm(dim=-1, keepdim=True)
    seen.saw("norm", (x,), {"dim": -1}, norm, "train.py:4: x", 7)
    seen.saw("__truediv__", (x, norm), {}, x / norm, "train.py:4: x", 7)
    assert (seen.found[0]["by"], seen.found[0]["rows"]) == ("norm", [1])
    seen.step_begins()
    seen.saw("__truediv__", (x, norm), {}, x / norm, "train.py:4: x", 8)
    assert seen.found[1]["by"] == ""
