"""The run draws random numbers that no seed determines."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.diagnosis.cause import FAIR, STRONG, Cause, Intervention, Signature
from steadytrain.diagnosis.interventions import SEEDS
from steadytrain.diagnosis.signs import fact, fails, ruled_out, when
from steadytrain.diagnosis.trial_effects import like

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case


@final
class UnseededRandomness(Cause):
    """No seed determines what the run draws: started again, it is another run.

    Means:
        The initial weights, the order of the data or its augmentation come from a generator without a seed. Recorded
        steps can still be replayed, because the generators' states are recorded, but two runs of one command differ
        from the first step on, and a difference between two settings may be chance. It breaks nothing by itself.

    Causes:
        - nobody calls `torch.manual_seed`
        - a data set draws from a generator of its own without a seed: `numpy.random.default_rng()`, `random.Random()`
        - values from outside: a clock, the order of files

    Next:
        1. Seed Python, NumPy and torch at the start, or run with `steadytrain run --seed N`.
        2. Give a generator of the data set the seed and the index of the sample: `default_rng((SEED, index))`.
        3. Run twice, and compare the first losses: `steadytrain compare RUN RUN`.
    """

    axis = "harness"
    base_rate = 2.0
    rivals = ()
    expects = like("script")
    confirming = ()
    spared = ()
    interventions = (
        SEEDS,
        Intervention(
            "seed-of-sample",
            4,
            "a generator for each sample, seeded with a fixed seed and the sample's index",
            code="rng = numpy.random.default_rng((SEED, index))  # in __getitem__",
        ),
    )
    grade = "C"
    source = "documentation of torch, Reproducibility; of NumPy, Random sampling"

    def signature(self, case: Case) -> Signature:
        drawn = fact(case, "rows_drawn_anew")
        seeded = fact(case, "torch_seeded")
        return Signature(
            (
                *fails(case, "torch_seeded", FAIR, "no seed was set for torch: weights and order differ by run"),
                *when(
                    isinstance(drawn, int),
                    STRONG,
                    f"row {drawn} of the data set is another one at each read, although all seeds are the same: it is "
                    "drawn from a generator without a seed",
                    "fact rows_drawn_anew",
                ),
                *ruled_out(seeded is not False and drawn is None, "torch was seeded, and no row is drawn without one"),
            ),
        )
