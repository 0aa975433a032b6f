"""The step segments, against damage."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.model import Window
from steadytrain.storage.segments import (
    SCALARS,
    SegmentWriter,
    StepRecord,
    count_records,
    read_scalars,
    read_segment,
    read_stream,
    window_of,
    write_window,
)

FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True)


@st.composite
def step_records(draw: st.DrawFn, tensors: int) -> list[StepRecord]:
    count = draw(st.integers(0, 6))
    return [
        StepRecord(
            step=draw(st.integers(0, 2**40)),
            time=draw(st.floats(0, 1e10)),
            scalars={name: draw(st.none() | FLOAT32) for name in SCALARS},
            gradient_norms=np.array(draw(st.lists(FLOAT32, min_size=tensors, max_size=tensors)), np.float32),
            skipped=draw(st.booleans()),
            refused=draw(st.booleans()),
        )
        for _ in range(count)
    ]


def assert_same(one: Window, other: Window) -> None:
    assert one.tensor_names == other.tensor_names
    np.testing.assert_array_equal(one.steps, other.steps)
    np.testing.assert_array_equal(one.time, other.time)
    np.testing.assert_array_equal(one.skipped, other.skipped)
    np.testing.assert_array_equal(one.refused, other.refused)
    np.testing.assert_array_equal(one.gradient_norms, other.gradient_norms)
    for name in SCALARS:
        np.testing.assert_array_equal(one.present[name], other.present[name])
        np.testing.assert_array_equal(one.signals[name], other.signals[name])


def write_steps(folder: Path, records: list[StepRecord], tensors: tuple[str, ...] = builders.TENSORS) -> Path:
    writer = SegmentWriter(folder, stream=folder.name)
    for record in records:
        writer.append(record, tensors)
    writer.close()
    return folder / "000001.steps"


# Segments.


@settings(max_examples=40)
@given(data=st.data(), tensors=st.integers(0, 4))
def test_segments_give_back_what_was_written(
    data: st.DataObject, tensors: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = tuple(f"layer.{index}" for index in range(tensors))
    records = data.draw(step_records(tensors))
    folder = tmp_path_factory.mktemp("segment") / "main"
    write_steps(folder, records, names)
    expected = window_of(records, names if records else ())
    assert_same(read_stream(folder), expected)
    write_window(folder.parent / "window", expected)
    assert_same(read_segment(folder.parent / "window.steps"), expected)
    assert count_records(folder) == len(records)


def test_a_file_cut_anywhere_in_the_last_record_opens_with_all_earlier_ones(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "main", builders.records(4))
    whole = path.read_bytes()
    size = len(whole) // 4
    for cut in range(3 * size, 4 * size):
        path.write_bytes(whole[:cut])
        assert read_segment(path).steps.tolist() == [1, 2, 3]


def test_a_flipped_bit_anywhere_in_a_record_ends_the_reading_before_it(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "main", builders.records(3))
    whole = path.read_bytes()
    size = len(whole) // 3
    for position in range(size, 2 * size):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        assert read_segment(path).steps.tolist() == [1]


def test_a_write_that_the_disk_cut_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = builders.records(3)
    writer = SegmentWriter(tmp_path / "main", stream="main")
    writer.append(first, builders.TENSORS)
    whole_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole_write(file, data[:-3]))
    with pytest.raises(OSError, match="step 2"):
        writer.append(second, builders.TENSORS)
    monkeypatch.undo()
    writer.append(third, builders.TENSORS)
    writer.close()
    assert read_stream(tmp_path / "main").steps.tolist() == [1, 3]


def test_a_value_beyond_float32_does_not_read_as_a_measured_infinity(tmp_path: Path) -> None:
    record = replace(builders.records(1)[0], scalars={"loss": 1e300, "gradient_norm": float("inf")})
    window = read_segment(write_steps(tmp_path / "main", [record]))
    assert np.isfinite(window.signals["loss"][0])
    assert np.isinf(window.signals["gradient_norm"][0])


def test_other_tensors_start_another_segment_and_are_read_side_by_side(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "main", stream="main")
    writer.append(replace(builders.records(1)[0], gradient_norms=np.array([1, 2], np.float32)), ("a", "b"))
    writer.append(replace(builders.records(1, first=2)[0], gradient_norms=np.array([3, 4], np.float32)), ("b", "c"))
    writer.close()
    window = read_stream(tmp_path / "main")
    assert window.tensor_names == ("a", "b", "c")
    assert window.gradient_norms.tolist() == [[1, 2, -1], [-1, 3, 4]]
    assert read_scalars(tmp_path / "main").tensor_names == ()
    assert read_scalars(tmp_path / "main").steps.tolist() == [1, 2]


def test_a_window_without_tensors_can_be_frozen(tmp_path: Path) -> None:
    window = replace(
        window_of(builders.records(2), builders.TENSORS), tensor_names=(), gradient_norms=np.zeros((0, 0), np.float32)
    )
    write_window(tmp_path / "window", window)
    assert len(read_segment(tmp_path / "window.steps")) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "upgrade steadytrain"),
        ({"version": "2"}, "upgrade steadytrain"),
        ({"scalars": [1, 2]}, "damaged"),
        ({"scalars": None}, "damaged"),
        ({"scalars": [f"s{index}" for index in range(40)]}, "damaged"),
        ({"stream": 3}, "damaged"),
    ],
)
def test_a_segment_schema_that_cannot_be_read_says_so(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = write_steps(tmp_path / "main", builders.records(1))
    schema = path.with_suffix(".json")
    schema.write_text(json.dumps({**json.loads(schema.read_text()), **change}))
    with pytest.raises(UsageError, match=message):
        read_segment(path)
