"""The value tree: what JSON can hold comes back, what it cannot is named and never replaced."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadytrain.core.errors import UsageError
from steadytrain.storage.tree import DEPTH_MAX, Opaque, decode, encode, opaque_types


class Tensor:
    """Stands for what the live half calls a tensor: the codec looks only at what it is told is one."""


def is_tensor(value: Any) -> bool:
    return isinstance(value, Tensor)


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters(), max_size=8)
VALUES = st.recursive(
    LEAVES | st.builds(Tensor),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_back_through_json(value: Any) -> None:
    tree, tensors = encode(value, is_tensor)
    back = decode(json.loads(json.dumps(tree, allow_nan=False)), tensors)
    assert back == value
    assert type(back) is type(value)
    assert opaque_types(tree) == []


def test_floats_that_json_lacks_come_back() -> None:
    tree, _ = encode([math.inf, -math.inf, math.nan], is_tensor)
    plus, minus, nan = decode(json.loads(json.dumps(tree, allow_nan=False)), {})
    assert (plus, minus) == (math.inf, -math.inf)
    assert math.isnan(nan)


@pytest.mark.parametrize("value", [{1: "a"}, {"a"}, b"x", object(), "x" * 200_000, lambda: None])
def test_what_json_lacks_is_named(value: Any) -> None:
    tree, _ = encode({"kept": 1, "lost": value}, is_tensor)
    assert len(opaque_types(tree)) == 1
    back = decode(tree, {})
    assert back["kept"] == 1
    assert isinstance(back["lost"], Opaque)


def test_a_value_that_holds_itself_ends() -> None:
    loop: list[Any] = []
    loop.append(loop)
    tree, _ = encode(loop, is_tensor)
    assert opaque_types(tree) == [f"list (nested deeper than {DEPTH_MAX})"]
    decode(tree, {})


@pytest.mark.parametrize(
    "tree",
    [
        None,
        [],
        {},
        {"value": 1, "list": []},
        {"unheard-of": 1},
        {"tensor": "t.9"},
        {"tensor": []},
        {"list": 3},
        {"dict": [["a"]]},
        {"dict": [[[], {"value": 1}]]},
        {"float": "many"},
        {"float": None},
    ],
)
def test_what_is_no_tree_is_refused(tree: Any) -> None:
    with pytest.raises(UsageError):
        decode(tree, {})


def test_a_tree_that_nests_without_end_is_refused() -> None:
    tree: Any = {"value": 1}
    for _ in range(5_000):
        tree = {"list": [tree]}
    with pytest.raises(UsageError, match="deep"):
        decode(tree, {})
