"""An embedding that gets too much."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import CLIP
from steadytrain.diagnosis.signs import above, below, fact, layer_of, quiet, ruled_out, seen, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class EmbeddingGradientSpike(Cause):
    """The gradient of the token embedding jumps before all others.

    Means:
        The embedding's gradient is amplified by every layer above, and its rows are small and rarely updated. GLM-130B
        saw it spike several steps before each collapse; shrinking it by ten kept the run stable.

    Causes:
        - embeddings much smaller than the layers expect (deviation 0.02 for 1; 2312.16903)
        - rare tokens with outdated second moments; no norm after the embedding

    Next:
        1. Shrink the embedding's gradient to a tenth, and continue from the snapshot.
        2. Scale embeddings by the root of the width, or add a norm after them.
        3. No decay on embeddings.
    """

    axis = "model"
    base_rate = 3.0
    rivals = ("second-moment-lag", "attention-logit-growth")
    # If rare tokens trigger it, other data and limits on the update may help, but a lower rate need not.
    expects = like(
        "script",
        removed=("embedding-gradient-shrink",),
        either=("beta2-lower", "drop-batch", "fresh-data", "reset-moments", "synthetic-batch", "update-clipping"),
    )
    confirming = ("embedding-gradient-shrink",)
    spared = ("drop-batch", "float32")
    interventions = (
        CLIP,
        Intervention(
            "embedding-gradient-shrink",
            5,
            "a tenth of the embedding's gradient",
            "embedding-gradient-shrink",
            code="x = 0.1 * embedded + 0.9 * embedded.detach()",
        ),
    )
    grade = "B"
    source = "GLM-130B 2210.02414; 2312.16903"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *ruled_out(quiet(case), "no symptom above a note was seen", "symptoms"),
                *symptom(case, STRONG, "embedding-gradient-spike"),
                *above(case, "embedding_gradient_share", 0.9, FAIR, "embeddings hold {value} of the squared gradient"),
                *below(case, "embedding_gradient_share", 0.5, -FAIR, "embeddings hold {value} of the squared gradient"),
                *ruled_out(
                    surveyed(case)
                    and fact(case, "embedding_gradient_share") is None
                    and seen(case, "embedding-gradient-spike") is None,
                    "there is no embedding",
                ),
            ),
            layer=layer_of(case),
        )
