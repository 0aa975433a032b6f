"""Positions that become equal."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import CERTAIN, HINT, Cause, Intervention, Sign, Signature
from steadytrain.diagnosis.interventions import FLOAT32
from steadytrain.diagnosis.signs import Signs, fact, first_name, listed, not_finite, ruled_out, seen, surveyed, symptom
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class LowPrecisionPositions(Cause):
    """Positions, frequencies or times are kept in a format in which neighbours become equal.

    Means:
        In bfloat16 257 rounds to 256. From there on, rotary or sinusoidal tables give neighbouring positions the same
        code, so long sequences lose their order. Training continues and is slightly worse.

    Causes:
        - `model.to(bfloat16)` or `.half()` casts buffers too (gpt-neox #1003, Megatron-LM #535)
        - positions made in the dtype of the hidden states
        - unix times, counters or coordinates in float32, before an offset is taken off

    Next:
        1. Make positions, frequencies, sine and cosine in float32, and cast the result.
        2. Register the buffer so that a cast of the model does not change it.
        3. Compare the loss at late positions before and after.
    """

    axis = "precision"
    base_rate = 9.0
    rivals = ("gradient-underflow", "lost-updates")
    expects = like("script", removed=("float32-positions",), either=("float32",))
    confirming = ("float32-positions", "float32")
    spared = ("learning-rate-third",)
    interventions = (
        Intervention(
            "float32-positions",
            2,
            "positions and frequencies in float32",
            "float32-positions",
            code="positions = torch.arange(length, dtype=torch.float32)",
        ),
        Intervention(
            "offset-first",
            2,
            "take the offset off in float64, and convert the difference",
            code="time = (time - time[0]).astype(np.float32)",
            of=("coarse-inputs", "times-in-float32", "rounded_differences"),
        ),
        FLOAT32,
    )
    grade = "B"
    source = "2411.13476; transformers PR 29285; gpt-neox #1003; Megatron-LM #535"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *listed(
                    case,
                    "positions_equal",
                    CERTAIN,
                    "neighbouring positions have the same code: {names}",
                    invariant=True,
                ),
                *listed(case, "positions_low_precision", HINT, "positions in 16 bits: {names}"),
                *symptom(case, CERTAIN, "coarse-inputs", "times-in-float32", invariant=True),
                *_rounded(case),
                *ruled_out(
                    seen(case, "coarse-inputs", "times-in-float32") is None
                    and not _rounded(case)
                    and surveyed(case)
                    and not fact(case, "positions_low_precision")
                    and not fact(case, "positions_equal"),
                    "no position is kept in 16 bits, and no input is far from zero",
                ),
                *ruled_out(not_finite(case), "equal positions make nothing infinite", "symptoms"),
            ),
            layer=first_name(case, "positions_equal"),
        )


def _rounded(case: Case) -> Signs:
    found = case.entries("rounded_differences")
    if not found:
        return ()
    first = found[0]
    place, _, code = str(first["line"]).partition(": ")
    said = (
        f"the {first['operation']} at {place} (`{code}`) is one of numbers up to {first['largest']:,.0f} in "
        f"{first['dtype']}, which rounds them to multiples of {first['distance']:.3g}, so it is lost in the rounding"
    )
    return (Sign(said, CERTAIN, "fact rounded_differences", {"step": float(first["step"])}, invariant=True),)
