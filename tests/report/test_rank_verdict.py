"""One rank with a much larger loss: what is graver on that rank follows from it."""

from __future__ import annotations

from pathlib import Path

import builders
from steadytrain.core.model import Symptom
from steadytrain.report.build import from_run
from steadytrain.report.rank_verdict import rank_verdict
from steadytrain.storage.run_folder import open_run

CAUSE = builders.symptom(
    13, last=40, name="rank-loss", severity="warning", signals=("ranks.value",), numbers={"rank": 2.0}
)


def of_loss(step: int, name: str = "divergence") -> Symptom:
    return builders.symptom(step, last=40, name=name, signals=("loss",))


def test_the_loss_of_the_rank_comes_first() -> None:
    verdict = rank_verdict([(CAUSE, ""), (of_loss(12), "rank 2")])
    assert verdict.startswith("warning: rank-loss at steps 13 to 40: ")
    assert verdict.endswith("; from it follows divergence (critical) on rank 2")
    assert rank_verdict([(CAUSE, "")]).startswith("warning: rank-loss")


def test_what_does_not_follow_from_it_comes_first() -> None:
    assert rank_verdict([(CAUSE, ""), (of_loss(13), "rank 1")]) == ""
    assert rank_verdict([(CAUSE, ""), (of_loss(13), "")]) == ""
    assert rank_verdict([(CAUSE, ""), (of_loss(2), "rank 2")]) == ""
    assert rank_verdict([(CAUSE, ""), (of_loss(13, "nonfinite-loss"), "rank 2")]) == ""
    assert rank_verdict([(of_loss(13), "rank 2")]) == ""


def test_a_report_leads_with_it(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path, symptoms=[CAUSE], world_size=4)
    rank = tmp_path / "ranks" / "0002"
    kept = builders.incident(33, symptoms=(of_loss(13),))
    builders.quiet_run(rank, rank=2, world_size=4, symptoms=[of_loss(13)], incidents=[kept])
    assert from_run(open_run(tmp_path)).verdict.startswith("warning: rank-loss at steps 13 to 40: ")
