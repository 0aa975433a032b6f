"""Which ranks should hold the same of a tensor, without processes: meshes and placements that are made here."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from steadytrain.capture.looks.replica_groups import ALONE, ReplicaGroups
from steadytrain.capture.step import ranks


class Mesh:
    """The mesh of ``ranks``, as the process ``own`` sees it."""

    def __init__(self, ranks: Any, own: int, names: tuple[str, ...] | None = None) -> None:
        self.mesh = torch.tensor(ranks)
        self.mesh_dim_names = names
        self._place = (self.mesh == own).nonzero()[0].tolist()

    def get_coordinate(self) -> list[int]:
        return self._place


class Placement:
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def is_replicate(self) -> bool:
        return self.kind == "R"

    def is_partial(self) -> bool:
        return self.kind == "P"

    def __str__(self) -> str:
        return self.kind


class Split(torch.Tensor):
    """A tensor over a mesh; each letter of ``kinds`` is a placement."""

    device_mesh: Mesh
    placements: tuple[Placement, ...]


def split(mesh: Mesh, kinds: str) -> Split:
    made = torch.ones(2).as_subclass(Split)
    made.device_mesh, made.placements = mesh, tuple(map(Placement, kinds))
    return made


@pytest.fixture(autouse=True)
def world(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "ranks_of", lambda _: (0, 1, 2, 3))


def holders(groups: ReplicaGroups, tensor: Any) -> list[int]:
    mesh = getattr(tensor, "device_mesh", None)
    return list(groups._holders(tensor, mesh))


def test_a_plain_parameter_is_held_by_all() -> None:
    one = nn.Parameter(torch.ones(2))
    groups = ReplicaGroups(None, [], [one])
    assert holders(groups, one) == [0, 1, 2, 3]
    assert groups.of_parameter(one) > 0
    assert groups.of_parameter(one) % 2 == 0
    assert groups.of_buffer(torch.ones(2)) == -groups.of_parameter(one)


@pytest.mark.parametrize(
    ("kinds", "expected"), [("RS", [1, 3]), ("SR", [2, 3]), ("RR", [0, 1, 2, 3]), ("SS", [3]), ("RP", [])]
)
def test_a_tensor_over_a_mesh_of_two_dimensions(kinds: str, expected: list[int]) -> None:
    one = split(Mesh([[0, 1], [2, 3]], 3), kinds)
    groups = ReplicaGroups(None, [], [one])
    assert holders(groups, one) == expected
    assert (groups.of_parameter(one) == ALONE) == (len(expected) < 2)
    assert len(expected) < 2 or groups.of_parameter(one) % 2 == 1


def test_a_tensor_over_one_dimension_is_a_replica_in_the_other_one() -> None:
    whole = split(Mesh([[0, 1], [2, 3]], 1, ("dp", "tp")), "SS")
    norm = split(Mesh([1, 3], 1, ("dp",)), "S")
    groups = ReplicaGroups(None, [], [whole, norm])
    assert holders(groups, norm) == [0, 1]
    assert holders(groups, torch.ones(2)) == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["pp", "ep", "dp_expert"])
def test_layers_and_experts_of_a_rank_are_its_own(name: str) -> None:
    whole = split(Mesh([[0, 1], [2, 3]], 1, (name, "dp_replicate")), "SR")
    groups = ReplicaGroups(None, [], [whole])
    assert holders(groups, torch.ones(2)) == [0, 1]


def test_ranks_that_hold_the_same_have_the_same_number() -> None:
    parts = [split(Mesh([[0, 1], [2, 3]], own), "RS") for own in range(4)]
    numbers = [ReplicaGroups(None, [], [one]).of_parameter(one) for one in parts]
    assert numbers[0] == numbers[2] != numbers[1] == numbers[3]
    assert max(numbers) < 1 << 24


def test_a_plain_parameter_beside_fully_sharded_ones_may_be_a_ranks_own() -> None:
    class FSDPModule(nn.Linear):
        pass

    whole = split(Mesh([0, 1, 2, 3], 1), "S")
    groups = ReplicaGroups(None, [FSDPModule(2, 2)], [whole])
    assert groups.of_parameter(torch.ones(2)) < 0
