"""What the ranks recorded, compared while they trained, names the cause."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_signatures import case_of, first

from steadytrain.diagnosis.causes.loss_scale_disagreement import LossScaleDisagreement


@pytest.mark.parametrize(
    ("symptom", "name"),
    [
        ("diverged-replicas", "rank-divergence"),
        ("rank-settings", "rank-divergence"),
        ("unshared-gradients", "unsynchronized-gradients"),
        ("same-data-on-ranks", "repeated-data"),
        ("uneven-ranks", "uneven-ranks"),
    ],
)
def test_what_the_ranks_recorded_tells(symptom: str, name: str) -> None:
    facts = {"ranks": 2}
    assert first(case_of(facts, symptom)) == name


def test_a_loss_scale_that_differs_goes_before_the_weights_that_differ_by_it() -> None:
    case = case_of({"ranks": 2, "rank_parameters_differ": ["0.weight"], "scaler": True}, "rank-settings")
    (seen,) = case.symptoms
    assert first(case) == "rank-divergence"
    of_scale = replace(seen, numbers={"rank": 1.0, "of_loss_scale": 1.0})
    assert first(replace(case, symptom=of_scale, symptoms=(of_scale,))) == "loss-scale-disagreement"


def test_loss_scales_that_were_seen_to_differ_are_believed_where_no_survey_met_the_scaler() -> None:
    """What the ranks recorded are facts, too; the launched script may have failed before it made its scaler."""
    case = case_of({"ranks": 2, "rank_parameters_differ": ["0.weight"], "rank_scales_differ": 181}, "rank-settings")
    (seen,) = case.symptoms
    of_scale = replace(seen, numbers={"rank": 1.0, "of_loss_scale": 1.0})
    signs = LossScaleDisagreement().signature(replace(case, symptom=of_scale, symptoms=(of_scale,))).signs
    assert signs
    assert all(sign.weight > 0 for sign in signs)
    assert any(sign.weight < 0 for sign in LossScaleDisagreement().signature(case).signs)
