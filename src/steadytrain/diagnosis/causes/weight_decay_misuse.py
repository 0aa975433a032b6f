"""Decay that is too strong, or on what must not decay."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import WEIGHT_DECAY_LOWER
from steadytrain.diagnosis.setting_signs import changed_settings
from steadytrain.diagnosis.signs import above, below, fact, listed, measured, ruled_out, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class WeightDecayMisuse(Cause):
    """Weight decay is too strong, has the wrong sign, or acts on norms, biases and embeddings.

    Means:
        Each step removes the share rate times decay of each weight; its inverse is the memory of the weights in steps.
        If the decay is a large share of the update, weights follow it and not the gradient: norms shrink, and the loss
        rises again or stays. With a negative decay weights grow without bound.

    Causes:
        - a decay meant for SGD's L2 in a decoupled optimizer, or the reverse; a factor of ten
        - one group for all parameters, norm scales and embeddings among them (2309.14322, OLMo 2)
        - a decay that does not follow the schedule

    Next:
        1. A third and three times the decay from the snapshot on: compare the symptom.
        2. Two groups: no decay for norms, biases and embeddings.
        3. Keep rate times decay times the number of steps near 1.
    """

    axis = "optimizer"
    base_rate = 3.0
    rivals = ("learning-rate-too-low", "learning-rate-too-high")
    expects = like("script", removed=("weight-decay-none", "weight-decay-lower"), either=("old-settings",))
    confirming = ("weight-decay-none", "weight-decay-lower", "old-settings")
    spared = ("drop-batch", "float32")
    interventions = (
        WEIGHT_DECAY_LOWER,
        Intervention(
            "decay-groups",
            3,
            "no decay for norms, biases and embeddings",
            "weight-decay-none",
            code='groups = [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]',
        ),
    )
    grade = "B"
    source = "2309.14322; 2405.13698; 2506.02285; OLMo 2 on embeddings"

    def signature(self, case: Case) -> Signature:
        decay = measured(case, "weight_decay")
        return Signature(
            (
                *above(case, "decay_per_step", 3e-3, STRONG, "a step takes {value} of each weight away"),
                *above(
                    case, "decay_share_of_update", 0.7, STRONG, "weight decay makes up a share of {value} of an update"
                ),
                *below(
                    case,
                    "weight_decay",
                    0.0,
                    CERTAIN,
                    "weight decay is {value}: weights are pushed away from zero",
                    invariant=True,
                ),
                *changed_settings(case, "decay", CERTAIN),
                *symptom(case, CERTAIN, "dominant-decay"),
                *symptom(case, STRONG, "vanishing-weights"),
                *symptom(case, FAIR, "scaled-weights"),
                *when(
                    fact(case, "decay_is_l2") is True and fact(case, "betas") is not None and decay >= LARGE_L2,
                    FAIR,
                    f"{fact(case, 'optimizer')} adds the weight decay of {decay:.3g} to the gradient, and divides it "
                    "by the second moment as well: AdamW does not",
                    "fact weight_decay",
                ),
                *listed(case, "weight_decay_of_norms", 0.2, "decayed though norms, biases or embeddings: {names}"),
                *ruled_out(measured(case, "weight_decay") == 0.0, "there is no weight decay"),
                *below(
                    case, "decay_share_of_update", 0.2, -STRONG, "weight decay makes up a share of {value} of an update"
                ),
            ),
        )


LARGE_L2 = 0.01
"""A usual decay of AdamW (torch's default). As L2 under a second moment it is a hundred times the usual one."""
