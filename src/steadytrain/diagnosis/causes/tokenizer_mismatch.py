"""A tokenizer that is not the one the weights know."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, FAIR, HINT, STRONG, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.interventions import CLEAN_ROWS
from steadytrain.diagnosis.signs import Signs, above, fact, measured, renumbered, ruled_out, surveyed, symptom, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class TokenizerMismatch(Cause):
    """The tokens come from a different tokenizer than the one that the weights were trained with.

    Means:
        Ids mean other words than the embedding learned, so a pretrained model starts at a loss far above its own, or
        much of the text becomes the unknown token. It trains slowly, almost from scratch.

    Causes:
        - weights of one revision, tokenizer of another
        - a chat template or special tokens that changed (axolotl #1806: two days to isolate)
        - ids that count from 1, or a special token put before all others: each id is off by a constant
        - a beginning token that is added twice (DeepSeek-R1 #151)
        - a vocabulary that is built anew for each file, or for training and held-out texts

    Next:
        1. Decode a batch and read it.
        2. Compare vocabulary size and fingerprint of the tokenizer with those stored with the weights.
        3. Measure the loss of the pretrained model on plain text before the first update.
    """

    axis = "data"
    base_rate = 12.0
    rivals = ("token-out-of-range", "uninitialized-parameters", "bad-initialization", "label-misalignment")
    expects = like("shift", removed=("undo-offset",))
    confirming = ("undo-offset", "fresh-data")
    spared = ("learning-rate-third", "float32")
    interventions = (
        Intervention("undo-offset", 4, "take the constant off the ids", "undo-offset", code="ids = ids - offset"),
        Intervention(
            "right-tokenizer",
            4,
            "load the tokenizer that belongs to the weights",
            code="tokenizer = AutoTokenizer.from_pretrained(name_of_the_weights)",
            of=("tokenizer_size", "token_unknown_share", "initial_loss", "loss"),
        ),
        Intervention(
            "one-vocabulary",
            4,
            "build one vocabulary over all texts, and read each of them with it",
            code='chars = sorted(set("".join(texts)))  # once, before the loop',
            of=("rebuilt-vocabulary",),
        ),
        CLEAN_ROWS,
    )
    grade = "A"
    source = "axolotl #1806; DeepSeek-R1 #151; transformers #2468"

    def signature(self, case: Case) -> Signature:
        size, rows = measured(case, "tokenizer_size"), measured(case, "token_rows")
        guess = measured(case, "uniform_loss")
        excess = measured(case, "initial_loss") - guess
        known, now = case.typical("loss") or math.nan, _loss_at(case)
        return Signature(
            (
                *symptom(case, CERTAIN, "rebuilt-vocabulary", invariant=True),
                *when(
                    size > rows,
                    STRONG,
                    f"the tokenizer has {size:.0f} tokens, the embedding {rows:.0f} rows",
                    "fact tokenizer_size",
                    invariant=True,
                ),
                *above(case, "token_unknown_share", 0.05, STRONG, "{value} of the tokens are the unknown token"),
                *when(
                    fact(case, "state_loaded") is True and excess > MARGIN_NATS,
                    STRONG,
                    f"loaded weights begin {excess:.2g} nats above a guess",
                    "fact initial_loss",
                ),
                *renumbered(case, STRONG),
                *_moved(case),
                *when(
                    known < guess - MARGIN_NATS and now > guess + MARGIN_NATS,
                    FAIR,
                    f"the loss rose from {known:.3g} to {now:.3g}, above that of a guess ({guess:.3g})",
                    "window loss",
                ),
                *when(
                    size < 0.5 * rows,
                    HINT,
                    f"the tokenizer has {size:.0f} tokens, the embedding {rows:.0f} rows",
                    "fact tokenizer_size",
                ),
                *ruled_out(surveyed(case) and fact(case, "token_rows") is None, "there is no embedding of tokens"),
            )
        )


MARGIN_NATS = 0.5
"""A model that reads the text beats a guess by this margin; one that misreads it is worse by this margin."""


def _loss_at(case: Case) -> float:
    """The loss at the onset, NaN if unknown."""
    losses = case.window.series("loss")
    found = losses.values[losses.steps == case.onset]
    return float(found[0]) if len(found) else math.nan


def _moved(case: Case) -> Signs:
    """A sign if all ids are off by a constant from the onset on."""
    found = fact(case, "token_offset")
    if not isinstance(found, list) or len(found) != 2:
        return ()
    offset, share = int(found[0]), float(found[1])
    text = f"from step {case.onset} on every id is {abs(offset)} {'more' if offset > 0 else 'less'} than before"
    numbers = {"offset": float(offset), "share": share}
    return (Sign(f"{text} ({share:.0%} of the frequencies match then)", CERTAIN, "fact token_offset", numbers),)
