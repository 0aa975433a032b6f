"""Trials on two ranks: what is tried on all, on the failing one alone, and in a world of one; and the diagnosis."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ranks_together import DATA_PARALLEL, NAN_RANK, NAN_STEP, REDUCED_IN_16_BITS, SUM_STEP, WORLD, launched
from scripts import call

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def of_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose row on rank 1 is NaN."""
    place = tmp_path_factory.mktemp("data")
    assert [one.status for one in launched(place, DATA_PARALLEL)] == [70] * WORLD
    return place


@pytest.fixture(scope="module")
def of_reduction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose gradients overflow 16 bits only when they are added up over the ranks."""
    place = tmp_path_factory.mktemp("reduction")
    assert [one.status for one in launched(place, REDUCED_IN_16_BITS)] == [70] * WORLD
    return place


def tried(folder: Path, *names: str) -> dict[str, dict[str, Any]]:
    ended = call("trial", "run", *names, "--runs-dir", "runs", "--json", folder=folder)
    assert ended.returncode == 0, ended.stderr
    document = json.loads(ended.stdout)
    assert document["control"] == {"shown": True, "exact": True, "why": "a value is not finite"}
    return {one["trial"]: one for one in document["trials"]}


def test_a_bad_batch_of_one_rank_fails_alone_too_and_not_with_another_batch_there(of_data: Path) -> None:
    found = tried(of_data, "one-rank", "drop-batch", "learning-rate-tenth", "float32")
    assert found["one-rank"]["effect"] == "persists"
    assert found["one-rank"]["numbers"] == {"alone": 1.0, "together": 1.0, "other_alone": 0.0}
    assert found["drop-batch"]["effect"] == "removed"
    assert found["drop-batch"]["changes"] == [
        {"kind": "other-batch-on-rank", "values": {"rank": NAN_RANK, "step": NAN_STEP, "instead": NAN_STEP - 1}}
    ]
    assert found["drop-batch"]["why"].startswith("with another batch on rank 1 alone: ")
    assert found["learning-rate-tenth"]["effect"] == "persists"
    assert found["float32"]["why"] == "float32 is not tried on several ranks: it may change each of them in another way"


def test_a_fault_between_the_ranks_goes_away_in_a_world_of_one(of_reduction: Path) -> None:
    found = tried(of_reduction, "one-rank")
    assert found["one-rank"]["effect"] == "removed"
    assert found["one-rank"]["numbers"] == {"alone": 0.0, "together": 1.0, "other_alone": 0.0}
    assert [run["losses"] for run in found["one-rank"]["runs"]][1] is not None
    assert found["unchanged"]["numbers"]["first_bad_step"] == SUM_STEP


def test_a_diagnosis_of_two_ranks_has_its_control_and_confirms(of_data: Path) -> None:
    ended = call("diagnose", "run", "--runs-dir", "runs", "--json", folder=of_data)
    document = json.loads(ended.stdout)
    assert (document["verdict"], document["status"]) == ("nonfinite-input", "confirmed"), ended.stderr
    assert document["replay"] == "exact"
    assert any(note.startswith("The batch of rank 1 at step 21 triggers it") for note in document["notes"])
    assert any("in a world of one, fails as well" in note for note in document["notes"])
