"""Of several ranks, the one where a step went wrong heads the report, and what it did to the others is said once."""

from __future__ import annotations

from pathlib import Path

import builders
from steadytrain.core.incident import Action, Finding
from steadytrain.report import build
from steadytrain.storage.ranks_of_run import BAD_RANKS, faulty_first, rank_folder
from steadytrain.storage.run_folder import open_run

STEP = 13
GRADIENT = builders.symptom(STEP, message="the gradient of 4 of 4 tensors holds NaN at step 13")
LOSS = builders.symptom(STEP, name="nonfinite-loss", message="the loss is NaN at step 13", signals=("loss",))


def skipped(run: Path, bad: int, world: int = 4) -> Path:
    """A run of several ranks that skipped the update of a step whose loss was NaN on the rank ``bad``."""
    for rank in range(world):
        seen = (LOSS, GRADIENT) if rank == bad else (GRADIENT,)
        frozen = builders.incident(
            STEP,
            symptoms=seen,
            finding=Finding(None, "nothing was re-run"),
            losses=(float("nan") if rank == bad else 6.6,),
            action=Action(STEP, "skip", "skipped-update", "the gradient is not finite"),
        )
        folder = rank_folder(run, rank)
        described = {"rank": rank, "world_size": world}
        facts = {**builders.FACTS, "ended": "finished"}
        steps = builders.records(20)
        builders.write_run(folder, steps=steps, symptoms=seen, facts=facts, **described)
        bundle = folder / "incidents" / f"step-{STEP}"
        builders.write_bundle(bundle, frozen, environment={**builders.ENVIRONMENT, **described})
    return run


def test_the_headline_names_the_rank_whose_loss_was_bad(tmp_path: Path) -> None:
    report = build.from_run(open_run(skipped(tmp_path / "r", 2)))
    assert report.verdict.startswith("Step 13 on rank 2: the loss is NaN")
    (incident,) = report.incidents
    (others,) = (fact.value for fact in incident.look if fact.label == "other ranks")
    assert others.startswith("The loss of ranks 0, 1 and 3 was finite in this step")
    assert [(row.name, row.origin) for row in report.symptoms] == [
        ("nonfinite-loss", "rank 2"),
        ("nonfinite-gradient", "ranks 0, 1, 2 and 3"),
    ]


def test_a_bad_rank_beyond_the_incidents_that_are_opened_is_found_by_the_run_s_own_fact(tmp_path: Path) -> None:
    path = skipped(tmp_path / "r", 11, world=12)
    run = open_run(path)
    every = [*run.incidents, *(one for rank in run.ranks for one in open_run(rank).incidents)]
    run.facts[BAD_RANKS] = {str(STEP): 11}
    assert faulty_first(run, every)[0].parent.parent == rank_folder(path, 11)
    assert build.from_run(run).verdict.startswith("Step 13 on rank 11: the loss is NaN")


def test_one_process_has_no_rank_in_its_headline(tmp_path: Path) -> None:
    report = build.from_run(open_run(builders.bad_run(tmp_path / "run")))
    assert report.verdict.startswith("Step 412: ")
