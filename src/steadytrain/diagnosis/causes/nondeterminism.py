"""The same step gives other numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import ONE_WORKER, SEEDS
from steadytrain.diagnosis.signs import fact, ruled_out, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class Nondeterminism(Cause):
    """The run is not repeatable: the same step from the same state gives different numbers.

    Means:
        No fault in itself, but with it no trial proves anything: a symptom may go away by chance. An operation sums in
        a different order each time, or a value comes from outside (a clock, an unseeded generator).

    Causes:
        - scatter and index operations with atomics; flash attention's backward; threads
        - draws from an unseeded generator; a clock; the order of files or of a set
        - workers that share a seed or draw from NumPy

    Next:
        1. `steadytrain replay INCIDENT` names the first operation that differs, and the torch setting that makes it
           deterministic.
        2. `torch.use_deterministic_algorithms(True)`; seeds for Python, NumPy and torch, and for each worker.
        3. Run the diagnosis again.
    """

    axis = "distributed"
    base_rate = 4.0
    rivals = ("hardware-fault", "compiled-code-mismatch")
    expects = like("transient", either=("unchanged", "perturbed", "other-seed"))
    confirming = ("deterministic",)
    spared = ()
    interventions = (
        SEEDS,
        ONE_WORKER,
        Intervention(
            "deterministic-algorithms",
            4,
            "deterministic operations only",
            "deterministic",
            code="torch.use_deterministic_algorithms(True)",
        ),
    )
    grade = "A"
    source = "documentation of torch.use_deterministic_algorithms; 2103.04514; AdaGC 2502.11034"

    def signature(self, case: Case) -> Signature:
        first = fact(case, "first_difference")
        where = ", ".join(f"{key} {value}" for key, value in first.items()) if isinstance(first, dict) else "unknown"
        return Signature(
            (
                *when(
                    fact(case, "replay_exact") is False,
                    FAIR,
                    f"a replay is not exact; it first differs at {where}",
                    "fact replay_exact",
                ),
                *ruled_out(fact(case, "replay_exact") is True, "the replay is bit-identical"),
            ),
        )
