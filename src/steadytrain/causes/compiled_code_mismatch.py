"""Compiled code that computes something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from steadytrain.causes.contract import CERTAIN, HINT, STRONG, Cause, Signature
from steadytrain.causes.interventions import EAGER, EXAMPLE
from steadytrain.causes.signs import above, below, equivalence, fact, first_name, listed, ruled_out, surveyed
from steadytrain.causes.table import column

if TYPE_CHECKING:
    from steadytrain.trials.case import Case


@final
class CompiledCodeMismatch(Cause):
    """The compiled model gives other numbers than the same model uncompiled.

    Means:
        A compiler may round differently, by a few units in the last place; it may not change the result. If the symptom
        goes away in eager mode and nothing else does it, the generated code is at fault.

    Causes:
        - a fault in a lowering or a fusion of this version (pytorch #114109, #113180, #193061)
        - code that the compiler traced with another value: a Python number, a flag, a random draw

    Next:
        1. Compare `eager`, `aot_eager` and `inductor` on the batch: the first that differs is at fault.
        2. Leave the layer that is named out of compilation.
        3. Try another version, and report it with the example of `steadytrain repro`.
    """

    base_rate = 14.0
    rivals = ("custom-operation-fault", "hardware-fault", "nondeterminism")
    expects = column("kernel")
    confirming = ("eager",)
    spared = ("float32", "learning-rate-third")
    interventions = (EAGER, EXAMPLE)
    grade = "A"
    source = "pytorch #114109, #113180, #193061, #169082"

    def signature(self, case: Case) -> Signature:
        return Signature(
            (
                *equivalence(
                    above(
                        case,
                        "compiled_difference",
                        100.0,
                        CERTAIN,
                        "compiled and eager differ by {value} roundings on the same batch",
                        invariant=True,
                    )
                ),
                *below(
                    case,
                    "compiled_difference",
                    30.0,
                    -STRONG,
                    "compiled and eager differ by {value} roundings on the same batch",
                ),
                *listed(case, "compiled", HINT, "compiled: {names}"),
                *ruled_out(surveyed(case) and not fact(case, "compiled"), "nothing is compiled"),
            ),
            layer=first_name(case, "compiled"),
        )
