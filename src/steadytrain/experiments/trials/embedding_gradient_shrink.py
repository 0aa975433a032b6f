"""A tenth of the gradient of embeddings."""

from __future__ import annotations

from typing import final

from steadytrain.experiments.case import Case
from steadytrain.experiments.planning import elsewhere, on_another_layer, planned
from steadytrain.experiments.specs import Change, NotApplicable, Placebo, Spec
from steadytrain.experiments.trial import Trial


@final
class EmbeddingGradientShrink(Trial):
    """A tenth of the gradient of embeddings.

    Changes:
        Gradients of embedding weights times 0.1.

    Tells:
        Spikes that come from the embedding.

    Beware:
        Slower progress of rare words.
    """

    axis = "model"
    removes = "transient"
    either = "data rate moments state logits shift operation script"

    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        # The symptom names the embedding table, whatever its module is called.
        seen = [name for one in case.symptoms if one.name == "embedding-gradient-spike" for name in one.tensors]
        layers = [*dict.fromkeys(seen), "*embed*", "*wte*", "*emb*"]
        return planned(self, case, Change("shrink-gradients", {"layers": layers, "factor": 0.1}))

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """The same on another layer."""
        other = elsewhere(case, "embed", "wte", "emb", *(name for one in case.symptoms for name in one.tensors))
        return on_another_layer(
            self,
            case,
            other,
            "shrinking the gradient of",
            Change("shrink-gradients", {"layers": [other or ""], "factor": 0.1}),
        )
