"""Every detector of the catalogue has a sick run in the zoo that it tells, and a healthy one that is like it."""

from __future__ import annotations

import pytest

from steadytrain.grouping.catalog import detector_name, detectors
from zoo_cases import ZOO, cases

OF_RANKS = (
    *("diverged-replicas", "rank-loss", "rank-settings", "same-data-on-ranks", "uneven-ranks", "unshared-gradients"),
)
SEVERAL = (
    "most runs of the zoo have one process: tests/capture/test_rank_agreement.py and benchmarks/ranks_unseen have both"
)

WITHOUT_SICK = {
    **dict.fromkeys(OF_RANKS[1:-1], SEVERAL),  # replicas and gradients have runs of two ranks
    "throughput-stall": "a script can only sleep, and beside other work the machine decides how long a step takes",
    "constant-targets": "it is always a note, because an adversarial loss has such targets",
    "stale-target": "it is a note for the first 16,000 updates",
    "summed-gradients": "it is always a note, because the rate may have been chosen for the sum",
    "moving-frozen-norms": "it is always a note, because statistics may be adapted on purpose",
    "evaluation-setback": "it is always a note, because harder data may begin after an evaluation by plan",
    "shared-time": "it is always a note, because the mean over batches is the same",
    "unexpected-inputs": "it is always a note, because the new data may be other data",
    "swapped-channels": "it is always a note, because the weights may have been trained on images with blue first",
    "diluted-divergence": "it is always a note, because the weight of the term may have been chosen for the mean",
}
WITHOUT_HEALTHY = {
    **dict.fromkeys(OF_RANKS, SEVERAL),
    "throughput-stall": WITHOUT_SICK["throughput-stall"],
    "swapped-channels": "a file is read with cv2, which the zoo's environment lacks: tests/capture/looks has both",
    "nonfinite-optimizer-state": "no healthy run holds NaN or Inf in its moments, and one without is not like it",
}
"""Their look-alikes are windows made by hand, in ``tests/symptoms``."""

FOLDERS = sorted(path.parent.name for path in ZOO.glob("*/cases.json"))
NAMES = [detector_name(type(detector)) for detector in detectors()]


def told() -> set[str]:
    """What sick runs expect above a note, and are not known to miss."""
    known = [case for folder in FOLDERS for case in cases(folder) if "known_miss" not in case]
    expected = {wanted["name"] for case in known for wanted in case.get("expect", ())}
    return expected | {f"nonfinite-{case['reached']}" for case in known if "reached" in case}


def resembled() -> set[str]:
    """What healthy runs are like without a known false alarm."""
    return {
        name
        for folder in FOLDERS
        for case in cases(folder)
        if "known_miss" not in case
        for name in case.get("like", ())
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_sick_run_and_a_healthy_one(name: str) -> None:
    assert (name in told()) != (name in WITHOUT_SICK)
    assert (name in resembled()) != (name in WITHOUT_HEALTHY)


def test_every_healthy_case_expects_nothing_and_is_like_a_detector() -> None:
    healthy = [case for folder in FOLDERS for case in cases(folder) if case["script"].startswith("healthy_")]
    assert len(healthy) >= 30
    assert [case["script"] for case in healthy if case.get("expect") or case["exit"] or "beside" in case] == []
    assert [case["script"] for case in healthy if not case.get("like") or not set(case["like"]) <= set(NAMES)] == []


def test_every_exception_is_a_detector() -> None:
    assert {*WITHOUT_SICK, *WITHOUT_HEALTHY} <= set(NAMES)
