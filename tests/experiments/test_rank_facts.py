"""Facts of several ranks, from what each of them recorded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import builders
from steadytrain.experiments.facts import FACTS
from steadytrain.experiments.rank_facts import facts_of_ranks
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial_catalog import trial
from steadytrain.storage.run_folder import open_run
from tabled import tensors, with_signals
from trial_cases import finite_case

STEPS = 12
NORMS = np.linspace(2.0, 1.0, STEPS)
GROWING = np.linspace(5.0, 6.0, STEPS)
APART = GROWING + 0.01 * np.arange(STEPS)


def run_of(
    folder: Path, *ranks: dict[str, Any], skipped: Sequence[Sequence[int]] = ((), ()), names: bool = False
) -> Path:
    """A run of so many ranks, each with these signals."""
    run = folder / "run"
    for rank, signals in enumerate(ranks):
        place = run if not rank else run / "ranks" / f"{rank:04d}"
        steps = [replace(one, skipped=one.step in skipped[rank]) for one in with_signals(STEPS, **signals)]
        builders.write_run(place, steps=steps, rank=rank, world_size=len(ranks))
        if names:
            norms = np.array([[1.0, 2.0], [1.0, 2.0 + rank]])
            tensors(place, [1, STEPS], ["body.weight", "head.weight"], weight_norm=norms)
    return run


def facts_of(run: Path) -> dict[str, Any]:
    facts = facts_of_ranks(open_run(run))
    assert set(facts) <= set(FACTS)
    return facts


def signals(gradients: Any = NORMS, parameters: Any = GROWING, scale: float = 1.0) -> dict[str, Any]:
    return {"gradient_norm": gradients, "parameter_norm": parameters, "loss_scale": np.full(STEPS, scale)}


def test_ranks_that_train_together(tmp_path: Path) -> None:
    facts = facts_of(run_of(tmp_path, signals(), signals(NORMS * (1 + 1e-7))))
    assert facts == {"ranks": 2, "ranks_synchronized": True, "rank_parameters_differ": [], "rank_scales_differ": 0}


def test_gradients_that_are_not_averaged(tmp_path: Path) -> None:
    facts = facts_of(run_of(tmp_path, signals(), signals(NORMS * 1.3, APART), names=True))
    assert facts["ranks_synchronized"] is False
    assert facts["rank_parameters_differ"] == ["head.weight"]


def test_replicas_that_were_never_equal(tmp_path: Path) -> None:
    facts = facts_of(run_of(tmp_path, signals(), signals(NORMS, GROWING + 1)))
    assert (facts["ranks_synchronized"], facts["rank_parameters_differ"]) == (True, ["all parameters"])


def test_of_shards_nothing_is_said(tmp_path: Path) -> None:
    assert facts_of(run_of(tmp_path, signals(), signals(NORMS * 1.3, GROWING + 1))) == {"ranks": 2}


def test_a_rank_that_skips_alone_and_scales_that_part(tmp_path: Path) -> None:
    assert facts_of(run_of(tmp_path, signals(), signals(), skipped=((4,), (4, 7))))["rank_scales_differ"] == 1
    other = tmp_path / "other"
    assert facts_of(run_of(other, signals(), signals(scale=0.5)))["rank_scales_differ"] == STEPS


def test_one_process_and_a_rank_that_is_lost(tmp_path: Path) -> None:
    assert facts_of_ranks(None) == {}
    assert facts_of(run_of(tmp_path, signals())) == {}
    run = run_of(tmp_path / "lost", signals(), signals())
    (run / "ranks" / "0001" / "index.sqlite").write_bytes(b"cut off")
    assert facts_of(run) == {"ranks": 2}


@pytest.mark.parametrize("name", ["unchanged", "drop-batch", "float32", "learning-rate-tenth"])
def test_no_trial_of_several_ranks_is_run(name: str) -> None:
    plan = trial(name).plan(finite_case(facts={"ranks": 2}))
    assert plan == NotApplicable("a script with several ranks cannot be launched again")
