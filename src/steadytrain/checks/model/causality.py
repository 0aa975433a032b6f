"""Does a language model see the token that it must predict?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, final

import torch

from steadytrain.checks.subject.inputs import random_weights
from steadytrain.checks.subject.model_check import CannotError, Check, Cost, Outcome, Subject, failed, not_run, passed
from steadytrain.checks.subject.scores import scores_of
from steadytrain.checks.subject.short_training import evaluating, few_rows
from steadytrain.checks.subject.tokens import look_with_leaves, main_embedding
from steadytrain.core.plugins import threshold

POSITIONS = (0.25, 0.5, 0.75)


@final
@dataclass(frozen=True)
class Causality(Check):
    """The prediction at a position depends on the tokens up to it, not on later ones.

    Means:
        The check differentiates the scores at some positions with respect to the embedded tokens, through the script's
        own attention. The gradient must be exactly 0 for every later token and nonzero for the token at the position. A
        model that sees later tokens reaches a very low loss and generates nonsense.

    Causes:
        - no causal mask, an inverted one, or one that is off by one
        - an attention backend that does not get the mask (`is_causal` left out, a mask dropped with padding)
        - convolutions or norms over time that use later positions
        - inputs that were shifted as well as the labels: the model does not see the last token

    Next:
        1. Print the mask as it reaches attention, for 5 tokens.
        2. Try another attention backend; if the leak goes away, the first one ignores the mask.
        3. If the position's own token has no gradient, look for a second shift of inputs or labels (label-alignment).
    """

    cost: ClassVar[Cost] = "seconds"
    source: ClassVar[str] = "gradient of logits at t with respect to embeddings after t is 0; transformers PR46634"

    leak_share: float = threshold(1e-6, "of the largest gradient; exactly 0 is right, fused kernels round")

    def inspect(self, subject: Subject) -> Outcome:
        if subject.task != "causal-lm":
            return not_run(f"the task is {subject.task}: only the next token must not be seen")
        batch = few_rows(subject.batches[0], 2)
        with evaluating(subject.model):
            embedding, _ = main_embedding(subject, batch)
            seen = look_with_leaves(subject, batch, embedding)
            assert seen.look is not None
            scores = scores_of(seen.look, batch.rows)
            if scores is None or scores.positions < 3:
                raise CannotError("the scores at each position cannot be told from the loss function's arguments")
            vectors = seen.vectors[0]
            length = min(scores.positions, vectors.shape[1])
            worst, own, largest, last_seen = 0.0, 0.0, 0.0, []
            for share in POSITIONS:
                at = max(1, min(length - 2, int(share * length)))
                part = scores.logits[:, at]
                (gradient,) = torch.autograd.grad((part * random_weights(part)).sum(), vectors, retain_graph=True)
                sizes = gradient.detach().abs().amax(dim=(0, 2))
                worst = max(worst, float(sizes[at + 1 :].max()))
                own = max(own, float(sizes[at]))
                largest = max(largest, float(sizes.max()))
                reached = torch.nonzero(sizes > self.leak_share * sizes.max()).flatten()
                last_seen.append(int(reached.max()) - at if len(reached) else -at)
        numbers: dict[str, Any] = {
            "own": own,
            "later": worst,
            "largest": largest,
            "sees_up_to": last_seen,
            "positions": length,
        }
        if largest == 0.0:
            return failed("the predictions do not depend on the tokens at all", **numbers)
        if worst > self.leak_share * largest:
            ahead = max(last_seen)
            return failed(f"predictions see up to {ahead} token{'s' if ahead > 1 else ''} ahead", **numbers)
        if own == 0.0:
            return failed(
                f"predictions do not see the token at their own position, only up to {-max(last_seen)} before it",
                **numbers,
            )
        return passed(f"no prediction depends on a later token ({len(POSITIONS)} positions, by gradient)", **numbers)
