"""Frozen values as JSON: what comes back is what went in, and a document of other types is refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steadytrain.core.json_values import JsonRow, JsonValue


@dataclass(frozen=True)
class Row(JsonRow):
    entry: int
    loss: float | None
    finite: bool


@dataclass(frozen=True)
class Part(JsonValue, keys="part:name size twice", closed=True):
    name: str
    size: int

    @property
    def twice(self) -> float:
        return 2 * self.size


@dataclass(frozen=True)
class Whole(JsonValue, schema="steadytrain.whole/1"):
    kind: Literal["one", "other"]
    parts: tuple[Part, ...]
    rows: tuple[Row, ...] | None
    numbers: Mapping[str, float]
    settings: tuple[Mapping[str, Any], ...] = ()
    values: tuple[float | int | str, ...] = ()
    note: str | None = field(default=None)


WHOLES = st.builds(
    Whole,
    kind=st.sampled_from(["one", "other"]),
    parts=st.lists(st.builds(Part, st.text(), st.integers()), max_size=3).map(tuple),
    rows=st.none()
    | st.lists(st.builds(Row, st.integers(), st.none() | st.floats(allow_nan=False), st.booleans())).map(tuple),
    numbers=st.dictionaries(st.text(), st.floats(allow_nan=False), max_size=3),
    settings=st.lists(st.dictionaries(st.text(), st.none() | st.integers() | st.lists(st.booleans()))).map(tuple),
    values=st.lists(st.text() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)).map(tuple),
    note=st.none() | st.text(),
)


@given(WHOLES)
def test_a_value_comes_back_from_its_own_strict_json(whole: Whole) -> None:
    assert Whole.from_json(json.loads(json.dumps(whole.to_json(), allow_nan=False))) == whole


def test_a_document_has_its_keys_in_order_and_its_floats_as_floats_or_texts() -> None:
    whole = Whole("one", (Part("a", 2),), (Row(0, float("nan"), True),), {"loss": 3, "norm": float("-inf")})
    assert json.dumps(whole.to_json(), allow_nan=False) == (
        '{"schema": "steadytrain.whole/1", "kind": "one", "parts": [{"part": "a", "size": 2, "twice": 4.0}], '
        '"rows": [[0, "nan", true]], "numbers": {"loss": 3.0, "norm": "-inf"}, "settings": [], "values": [], '
        '"note": null}'
    )


def test_a_key_with_a_default_may_be_missing_and_one_of_no_field_is_passed_over() -> None:
    read = Whole.from_json({"kind": "other", "parts": [], "rows": None, "numbers": {}, "newer": 1})
    assert read == Whole("other", (), None, {})


@pytest.mark.parametrize(
    "damage",
    [
        {"kind": "third"},
        {"parts": None},
        {"parts": [{"part": "a", "size": "2"}]},
        {"parts": [{"part": "a"}]},
        {"parts": [{"part": "a", "size": 2, "newer": 1}]},
        {"rows": [[0, 1.0]]},
        {"rows": [[0, True, True]]},
        {"rows": [[True, 1.0, True]]},
        {"numbers": {"loss": "high"}},
        {"numbers": [1.0]},
        {"note": 3},
    ],
)
def test_a_document_of_other_types_is_refused(damage: dict[str, Any]) -> None:
    document = {"kind": "one", "parts": [], "rows": None, "numbers": {}}
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        Whole.from_json(document | damage)
