"""A policy: what is done for each symptom, the ladders of interventions, and their budget. Torch-free.

``observe``, ``stop`` and ``skip`` answer to non-finite values alone. ``steady`` also intervenes. A file
(``policy_files``) starts from one of them and changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

from steadytrain.core.incident import MAX_SKIPS_DEFAULT
from steadytrain.core.incident import Policy as PlainPolicy

Response = Literal["note", "alert", "capture", "stop", "skip", "intervene"]
"""Keep on record; also tell; also freeze as an incident; end the run; skip the update; climb a ladder."""

RESPONSES: tuple[Response, ...] = get_args(Response)
BASES = ("observe", "stop", "skip", "steady")
AT_GATE = ("nonfinite-loss", "nonfinite-gradient")
"""The symptoms that are seen before the update of their step."""

OUTLIERS = ("loss-spike", "gradient-norm-spike")
"""The symptoms of which ``skip`` skips the update itself: its loss or gradient norm is far above those before."""

SPIKE, NONFINITE = "default", "nonfinite"
"""Ladders for the symptoms without a ladder of their own."""

EXTREME = "gradient-norm-spike"
"""The symptom whose ladder decides about updates that are finite and far beyond all of the last steps."""

SKIPPED = (*AT_GATE, EXTREME, NONFINITE, SPIKE)
"""The ladders that may begin with a skip: what they are for is seen at the gate."""

STEADIED = (
    *("divergence", "loss-spike", "lost-progress", "exploding-gradients", "update-norm-spike", "second-moment-lag"),
    *("embedding-gradient-spike", "nonfinite-weight", "nonfinite-optimizer-state", "nonfinite-activation"),
)
"""The symptoms that ``steady`` answers with an intervention: those of weights that have left their course. The loss or
the norms moved by more than a healthy run's, so that a return to an earlier state can help."""

Rung = tuple[str, ...]
"""Interventions that are made at once."""


@dataclass(frozen=True)
class Budget:
    """How much a policy may do.

    Args:
        skips_in_a_row: updates that are skipped one after another.
        skips: skipped updates in the whole run.
        rollbacks: roll-backs within ``ROLLBACK_WINDOW`` steps.
        lowest_learning_rate: smallest share of the script's own learning rate.
        cool_down: steps without a symptom after which the interventions are taken back.
    """

    skips_in_a_row: int = MAX_SKIPS_DEFAULT
    skips: int = 100
    rollbacks: int = 6
    lowest_learning_rate: float = 0.01
    cool_down: int = 200


ROLLBACK_WINDOW = 10_000

SKIP: Rung = ("skip",)
"""The first rung: updates that are not finite, or extreme, are skipped as often as the budget allows."""

LADDER: tuple[Rung, ...] = (
    ("roll-back", "clip", "hold-learning-rate", "hold-settings"),
    ("roll-back", "clip", "lower-learning-rate", "hold-settings"),
    ("roll-back", "clip", "lower-learning-rate", "hold-settings", "reset-moments"),
    ("roll-back", "clip", "lower-learning-rate", "hold-settings", "reset-moments"),
)
"""From fast to invasive: past the offending data with a usual gradient, at a lower rate, with new moments."""


@dataclass(frozen=True)
class Policy:
    """What is done for each symptom.

    Args:
        name: ``steady``, or the file that it was read from.
        base: the policy that it starts from.
        symptoms: the response to each named symptom.
        default: the response to all others.
        ladders: for a symptom, for ``nonfinite`` and for ``default``.
        settings: of interventions, by name.
        always: interventions that hold from the first step on.
        asked: those that the user named, here or in a ladder: what cannot be made ends the run before its first update.
    """

    name: str
    base: str
    symptoms: Mapping[str, Response] = field(default_factory=dict)
    default: Response = "capture"
    budget: Budget = field(default_factory=Budget)
    ladders: Mapping[str, tuple[Rung, ...]] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, float | str]] = field(default_factory=dict)
    always: Rung = ()
    asked: Rung = ()

    def response(self, symptom: str) -> Response:
        """What is done for a symptom of that name, if it is a warning or graver."""
        if symptom in self.symptoms:
            return self.symptoms[symptom]
        if self.base == "steady" and symptom in STEADIED:
            return "intervene"
        return self.default

    def ladder(self, symptom: str) -> tuple[Rung, ...]:
        """The interventions for it, in order."""
        general = NONFINITE if symptom in AT_GATE else SPIKE
        return self.ladders.get(symptom) or self.ladders.get(general) or self.ladders.get(SPIKE, ())

    @property
    def plain(self) -> PlainPolicy:
        """What is done at the gate, of a policy that does nothing else (``acts``)."""
        answers = {self.response(name) for name in AT_GATE}
        return "stop" if "stop" in answers else "skip" if "skip" in answers else "observe"

    @cached_property  # asked several times in a step
    def acts(self) -> bool:
        """Whether it needs more than the gate: an intervention, or a response to values that are finite."""
        responses = (*self.symptoms.items(), ("", self.default))
        at_gate = {self.response(name) for name in AT_GATE}
        return (
            self.base == "steady"
            or bool(self.always)
            or len(at_gate) > 1
            or any(
                response in ("intervene", "note", "alert") or (response in ("stop", "skip") and name not in AT_GATE)
                for name, response in responses
            )
        )


def built_in(name: str, *, max_skips: int = MAX_SKIPS_DEFAULT) -> Policy:
    """The policy of that name, one of ``BASES``."""
    at_gate: Response = {"observe": "capture", "stop": "stop", "skip": "skip"}.get(name, "intervene")  # type: ignore[assignment]
    policy = Policy(name, name, dict.fromkeys(AT_GATE, at_gate), budget=Budget(skips_in_a_row=max_skips))
    if name != "steady":
        return policy
    return replace(policy, ladders={NONFINITE: (SKIP, *LADDER), SPIKE: (SKIP, *LADDER)})
