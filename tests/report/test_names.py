"""Names of layers: in the order of the model, and as blocks where they are too many."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tabled
from steadytrain.report.layer_labels import WHOLE_MODEL, blocks, in_model_order, module_of, shared_beginning, shortened

dotted = st.lists(st.sampled_from(["a", "b", "0", "1", "2", "mlp"]), min_size=1, max_size=4).map(".".join)


def ordered(names: list[str], known: tuple[str, ...] = ()) -> list[str]:
    return [names[index] for index in in_model_order(names, known)]


def test_parameters_stand_with_their_module_and_in_the_order_of_the_modules() -> None:
    by_group = ["norm.weight", "block.0.up.weight", "block.10.up.weight", "block.0.up.bias", "block.10.up.bias"]
    assert ordered(by_group, ("", "block", "block.0", "block.0.up", "block.10", "norm")) == [
        *("block.0.up.weight", "block.0.up.bias", "block.10.up.weight", "block.10.up.bias", "norm.weight")
    ]
    # Without known modules the first mention counts: 2 before 10, as the model has them and the alphabet has not.
    assert ordered(["b.2.w", "b.10.w", "b.2.b"]) == ["b.2.w", "b.2.b", "b.10.w"]


@given(st.lists(dotted, max_size=60), st.integers(1, 20))
def test_blocks_hold_every_name_once_and_in_order(names: list[str], count_max: int) -> None:
    names = ordered(names)
    found = blocks(names, count_max)
    assert len(found) <= max(count_max, 0)
    assert [block.start for block in found] == [0, *(block.stop for block in found[:-1])][: len(found)]
    assert not found or found[-1].stop == len(names)
    assert all(block.start < block.stop for block in found)


def test_blocks_are_the_parts_of_the_model_that_have_room() -> None:
    modules = [f"layers.{layer}.{part}" for layer in range(48) for part in ("attention", "up", "down")]
    names = [f"{module}.{kind}" for module in modules for kind in ("weight", "bias")]
    assert [block.name for block in blocks(names, 288)] == names
    assert [block.name for block in blocks(names, 287)] == modules
    assert [block.name for block in blocks(names, 100)] == [f"layers.{layer}" for layer in range(48)]


@pytest.mark.parametrize("count", [1_000, 20_000])
def test_thousands_of_blocks_use_the_room_and_do_not_fall_into_one(count: int) -> None:
    names = ordered([*tabled.layers(count)])
    found = blocks(names, 200)
    assert 100 < len(found) <= 200
    last = (found[0].stop - found[0].start) // 2 - 1
    assert found[0].name == f"model.blocks.0 … {last}"
    assert len({stop - start for start, stop in itertools.pairwise(block.start for block in found)}) == 1


def test_labels_drop_what_all_names_share() -> None:
    names = ["model.blocks.0.up.weight", "model.blocks.1.up.weight", WHOLE_MODEL]
    assert shared_beginning(names) == "model.blocks."
    assert shortened(names) == ["0.up.weight", "1.up.weight", WHOLE_MODEL]
    assert shortened(["alone.weight"]) == ["alone.weight"]
    (long,) = shortened(["x" * 200 + ".weight"])
    assert len(long) == 34
    assert long.endswith(".weight")


def test_a_parameter_of_the_model_itself_belongs_to_the_whole_model() -> None:
    assert (module_of("head.weight"), module_of("scale")) == ("head", WHOLE_MODEL)
