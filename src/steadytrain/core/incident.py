"""An incident: the state stored for a symptom, the operation that caused it, and what steadytrain did.

Inert, frozen values, as in ``model``. Not here: the bundle on disk (``storage``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import Symptom, worst
from steadytrain.core.notebook import as_card

Phase = Literal["preprocessing", "forward", "loss", "backward", "clip", "optimizer", "communication"]
"""Where an operation ran. ``preprocessing`` is what the script does to a batch before the model gets it. ``clip``
covers all changes to gradients between backward and the update: clipping, unscaling, averaging.
"""

Policy = Literal["observe", "stop", "skip", "steady"]
"""The policies that ship; a policy file counts as ``steady`` if it does more than one of the others."""

ActionWord = Literal[
    "refused-update",
    "refused-rest-of-update",
    "skipped-update",
    "observed",
    "applied",
    "not-applied",
    "reverted",
    "ended",
    "rolled-back",
    "stopped",
    "paused",
    "resumed",
    "resumed-from",
    "changed-level",
    "kept-snapshot",
    "kept-steps",
]
"""What an entry of the ledger says. ``applied``, ``reverted`` and ``ended`` (its return is over): an intervention."""

UNTOUCHING = ("observed", "not-applied", "paused", "resumed", "changed-level", "kept-snapshot", "kept-steps")
"""Entries that changed nothing in the training."""

MAX_SKIPS_DEFAULT = 5
"""Updates in a row that the policy ``skip`` skips before it stops the run."""

IncidentKind = Literal["nonfinite", "symptom"]


@dataclass(frozen=True)
class OperandRange(JsonValue, closed=True):
    """Summary of one input of an operation, enough to see why the result was not finite.

    ``smallest`` and ``largest`` cover the finite elements, None if there are none. ``text`` holds the value of an input
    that is not a tensor.
    """

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    smallest: float | None = None
    largest: float | None = None
    zeros: int = 0
    nan: int = 0
    inf: int = 0
    text: str | None = None

    def summary(self) -> str:
        """Describe the operand in one line, without its name: ``float32 [32, 10], 0 to 0.981, 14 zeros``."""
        if self.text is not None:
            return self.text
        shape = str(list(self.shape)) if self.shape is not None else ""
        parts = [" ".join(filter(None, [(self.dtype or "").removeprefix("torch."), shape]))]
        if self.smallest is not None and self.largest is not None:
            parts.append(f"{self.smallest:.4g} to {self.largest:.4g}")
        counts = ((self.zeros, "zero" if self.zeros == 1 else "zeros"), (self.nan, "NaN"), (self.inf, "Inf"))
        parts += [f"{count:,} {what}" for count, what in counts if count]
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Located(JsonValue, closed=True):
    """The first bad operation: it made a non-finite value that reached the loss or a gradient.

    ``operation`` is the ATen name (``aten.log.default``) and ``produced`` is ``nan`` or ``inf``. ``module`` is the path
    inside the model, "" outside it. ``file``/``line``/``code`` give the Python line of the call; for a backward
    operation, the forward line that it differentiates. ``chain`` lists the operations that passed the value on, first
    to last. ``method`` names the re-run that found it.
    """

    phase: Phase
    operation: str
    produced: Literal["nan", "inf"]
    module: str
    file: str | None
    line: int | None
    code: str | None
    inputs: tuple[OperandRange, ...]
    chain: tuple[str, ...]
    reached: str
    method: str

    @property
    def operation_said(self) -> str:
        """The operation as a user knows it: a tensor made of the script's numbers is ``torch.tensor``."""
        return "torch.tensor" if self.operation.split(".")[1:2] in _MADE_OF_NUMBERS else self.operation


_MADE_OF_NUMBERS = (["lift"], ["lift_fresh"], ["lift_fresh_copy"])
"""What ``torch.tensor(1.0)`` is to the dispatcher of torch."""

ZERO = ("0", "0.0", "-0.0")
"""How ``OperandRange.text`` shows the number 0 of the script."""

UNKNOWN_OWNER = "a tensor from before the re-run"
"""In ``Finding.why``: no weight, buffer or state of an optimizer held the value, but a tensor of the script."""


BATCH_IS_BAD, WEIGHTS_ARE_BAD = "the batch already holds", "the parameter already holds"
"""How the reason of a finding begins where the bad value was there before any operation."""

COMPUTED = "what the script computed from an earlier call of a model"
"""How the reason begins if the script made the bad value in a part of the step that was not traced."""

CONSTANT = "no operation broke"
"""How the reason begins if the script wrote NaN or Inf as a number."""

NOT_MADE_HERE = "no operation of the step made it"
"""In the reason of a finding: what the script did before it called the model was traced, too."""


@dataclass(frozen=True)
class Finding(JsonValue):
    """The result of the search for the first bad operation: the operation, or the reason why it was not found."""

    located: Located | None
    why: str

    @property
    def came_in(self) -> str:
        """What held the bad value before any operation, the batch or a parameter; "" if an operation made it."""
        return self.why if self.located is None and self.why.startswith((BATCH_IS_BAD, WEIGHTS_ARE_BAD)) else ""

    def is_half_traced(self, samples: Sequence[Samples] = ()) -> bool:
        """Whether what the model got was bad, and nobody knows yet what made it so: neither was that traced, nor do
        ``samples`` show that the batch was loaded with it."""
        if self.located is None and self.why.startswith(COMPUTED):
            return True
        loaded = any(one.nonfinite_rows for one in samples)
        return self.came_in.startswith(BATCH_IS_BAD) and NOT_MADE_HERE not in self.why and not loaded


@dataclass(frozen=True)
class BadTensor(JsonValue, closed=True):
    """A parameter with a non-finite gradient: the NaN and Inf among its ``count`` elements."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    inf: int
    count: int


@dataclass(frozen=True)
class Action(JsonValue, closed=True):
    """One entry of the ledger: what steadytrain did to the run, or allowed to happen.

    ``intervention`` is its name, "" for none. ``before`` and ``after`` are numbers that it changed, such as
    ``learning_rate``. ``by`` is ``policy``, or ``hand`` for a command (``steadytrain ctl``) or an option of the run.
    """

    step: int
    policy: Policy
    what: ActionWord
    reason: str
    intervention: str = ""
    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    by: Literal["policy", "hand"] = "policy"

    @property
    def touched(self) -> bool:
        """Whether it changed the training."""
        return self.what not in UNTOUCHING


@dataclass(frozen=True)
class Samples(JsonValue):
    """The data set samples of a batch, in the order in which the loader's sampler drew them.

    ``batch`` numbers the model's calls in the step, from 0. ``nonfinite_rows`` are the rows with NaN or Inf in what the
    data set returned. ``nonfinite_fields`` names the fields of the batch (a key or a number) that hold them, if the
    script still held the batch. ``later_rows`` are the rows whose NaN or Inf came in after the loader, or whose tensor
    was changed in place after it. ``later_lines`` are the lines of the script that changed the batch between, as text.
    """

    batch: int
    dataset: str
    indices: tuple[int, ...]
    nonfinite_rows: tuple[int, ...] = ()
    nonfinite_fields: tuple[str, ...] = ()
    later_rows: tuple[int, ...] = ()
    later_lines: tuple[str, ...] = ()

    def named(self, row: int) -> str:
        """The data set index of the sample in that row, as text."""
        return f"{self.dataset}[{self.indices[row]}]"

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Samples:
        found = super().from_json(data)
        known = range(len(found.indices))
        return replace(
            found,
            nonfinite_rows=tuple(row for row in found.nonfinite_rows if row in known),
            later_rows=tuple(row for row in found.later_rows if row in known),
        )


@dataclass(frozen=True)
class Incident(
    JsonValue,
    schema="steadytrain.incident/1",
    keys="kind run step stream created symptoms located why parameters action losses loss_origin micro_batches "
    "batch_note state_note samples",
):
    """A symptom with the state needed to analyse it later. The same bundle holds the tensors.

    If ``kind`` is ``nonfinite``, the loss or a gradient was not finite: the step was stored before its update, with
    batch and state. If it is ``symptom``, detectors raised ``symptoms[0]``: ``step`` is the last step that they
    analysed, training went on, and the recording holds batches and states.

    Examples:
        >>> steadytrain.load_run("runs/stopped").open_incidents()[0]
        <Incident at step 4 of 'stopped': nonfinite-loss, nonfinite-gradient; aten.log.default made inf>
    """

    run: str
    step: int
    stream: str
    created: str
    symptoms: tuple[Symptom, ...]
    parameters: tuple[BadTensor, ...]
    action: Action
    finding: Finding
    losses: tuple[float, ...]
    loss_origin: str | None
    micro_batches: int
    batch_note: str
    state_note: str
    kind: IncidentKind = "nonfinite"
    samples: tuple[Samples, ...] = ()

    def __repr__(self) -> str:
        symptoms = ", ".join(symptom.name for symptom in self.symptoms) or self.kind
        return f"<Incident at step {self.step} of {self.run!r}: {symptoms}; {self._operation()}>"

    def _repr_html_(self) -> str:
        facts = {symptom.name: symptom.message for symptom in self.symptoms}
        kept = {"first bad operation": self._operation(), "done": self.action.what, "weights": self.state_note}
        return as_card(self, f"Incident at step {self.step} of {self.run}", {**facts, **kept})

    def _operation(self) -> str:
        located = self.finding.located
        return self.finding.why if located is None else f"{located.operation_said} made {located.produced}"

    @property
    def onset_step(self) -> int:
        """The step at which the symptom began."""
        return self.symptoms[0].first_step if self.kind == "symptom" and self.symptoms else self.step

    @property
    def is_note(self) -> bool:
        """Whether nothing graver than a note was frozen: the loss rose and came back, and nothing is wrong now."""
        return self.kind == "symptom" and worst([symptom.severity for symptom in self.symptoms]) == "note"

    @property
    def located(self) -> Located | None:
        return self.finding.located

    @property
    def why(self) -> str:
        return self.finding.why

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Incident:
        return super().from_json({**data, "finding": data})
