"""An incident: what was frozen of a symptom, which operation made it, and what steadytrain did.

Inert, frozen values, as in ``model``. Not here: the bundle that lies on the disk (``storage``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from steadytrain.core.model import SEVERITIES, Symptom, number_from_json, number_to_json, worst
from steadytrain.core.notebook import as_html

Phase = Literal["forward", "loss", "backward", "clip", "optimizer", "communication"]
"""Where an operation ran. ``clip`` is all that is done to gradients between backward and the update: clipping,
unscaling, averaging."""

Policy = Literal["observe", "stop"]
IncidentKind = Literal["nonfinite", "symptom"]


@dataclass(frozen=True)
class OperandRange:
    """One input of an operation, summed up: what a person needs to see why the result was not finite.

    ``smallest`` and ``largest`` are over the finite elements (None when there are none). ``text`` holds the value
    of an input that is no tensor.
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
        """The operand in a line, without its name: ``float32 [32, 10], 0 to 0.981, 14 zeros``."""
        if self.text is not None:
            return self.text
        shape = str(list(self.shape)) if self.shape is not None else ""
        parts = [" ".join(filter(None, [(self.dtype or "").removeprefix("torch."), shape]))]
        if self.smallest is not None and self.largest is not None:
            parts.append(f"{self.smallest:.4g} to {self.largest:.4g}")
        counts = ((self.zeros, "zeros"), (self.nan, "NaN"), (self.inf, "Inf"))
        parts += [f"{count:,} {what}" for count, what in counts if count]
        return ", ".join(filter(None, parts))

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["shape"] = list(self.shape) if self.shape is not None else None
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> OperandRange:
        shape = data["shape"]
        return OperandRange(**{**data, "shape": tuple(shape) if shape is not None else None})


@dataclass(frozen=True)
class Located:
    """The first bad operation: where a value stopped being finite and went on into the loss or a gradient.

    ``operation`` is the ATen name (``aten.log.default``), ``produced`` is ``nan`` or ``inf``, ``module`` the path
    inside the model ("" outside it), ``file``/``line``/``code`` the line of Python that asked for it; for a
    backward operation that is the line of the forward that it differentiates. ``chain`` lists the operations
    that carried the value on, first to last. ``method`` says which re-run found it.
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

    def to_json(self) -> dict[str, Any]:
        data = asdict(self)
        data["inputs"] = [operand.to_json() for operand in self.inputs]
        data["chain"] = list(self.chain)
        return data

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Located:
        return Located(
            **{
                **data,
                "inputs": tuple(OperandRange.from_json(operand) for operand in data["inputs"]),
                "chain": tuple(data["chain"]),
            }
        )


@dataclass(frozen=True)
class Finding:
    """What a search for the first bad operation gave: the operation, or why there is none."""

    located: Located | None
    why: str

    def to_json(self) -> dict[str, Any]:
        return {"located": self.located.to_json() if self.located else None, "why": self.why}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Finding:
        located = data["located"]
        return Finding(Located.from_json(located) if located else None, data["why"])


@dataclass(frozen=True)
class BadTensor:
    """A parameter whose gradient was not finite: how many NaN and Inf among ``count`` elements."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nan: int
    inf: int
    count: int

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "shape": list(self.shape)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> BadTensor:
        return BadTensor(**{**data, "shape": tuple(data["shape"])})


@dataclass(frozen=True)
class Action:
    """One line of the ledger: what steadytrain did to the run, or let happen."""

    step: int
    policy: Policy
    what: Literal["refused-update", "refused-rest-of-update", "observed"]
    reason: str

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Action:
        return Action(**data)


@dataclass(frozen=True)
class Samples:
    """Of which samples of its data set a batch was made, row by row, as the loader's sampler drew them.

    ``batch`` counts the calls of the model in the step, from 0. ``nonfinite_rows`` are those with NaN or Inf in them,
    ``nonfinite_fields`` where in the batch that is (a key, or a number), as far as the script still had it.
    """

    batch: int
    dataset: str
    indices: tuple[int, ...]
    nonfinite_rows: tuple[int, ...] = ()
    nonfinite_fields: tuple[str, ...] = ()

    def named(self, row: int) -> str:
        """The sample in that row as it is got from the data set."""
        return f"{self.dataset}[{self.indices[row]}]"

    def to_json(self) -> dict[str, Any]:
        lists = ("indices", "nonfinite_rows", "nonfinite_fields")
        return asdict(self) | {name: list(getattr(self, name)) for name in lists}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Samples:
        indices, rows = tuple(map(int, data["indices"])), tuple(map(int, data["nonfinite_rows"]))
        rows = tuple(row for row in rows if 0 <= row < len(indices))
        fields = tuple(map(str, data["nonfinite_fields"]))
        return Samples(int(data["batch"]), str(data["dataset"]), indices, rows, fields)


@dataclass(frozen=True)
class Incident:
    """A symptom, frozen with what is needed to look into it later. The tensors lie beside it in the bundle.

    ``kind`` is ``nonfinite`` where the gate saw a loss or gradient that is not finite: the step was frozen before its
    update, with batch and state. It is ``symptom`` where detectors raised ``symptoms[0]``: ``step`` is the last that
    they saw, training went on, and batches and states are on the recording.

    Example:
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
        return as_html(f"Incident at step {self.step} of {self.run}", {**facts, **kept})

    def _operation(self) -> str:
        located = self.finding.located
        return self.finding.why if located is None else f"{located.operation} made {located.produced}"

    @property
    def onset_step(self) -> int:
        """Where what it is about began."""
        return self.symptoms[0].first_step if self.kind == "symptom" and self.symptoms else self.step

    def to_json(self) -> dict[str, Any]:
        """The ``steadytrain.incident/1`` document, without what the bundle holds as files of their own."""
        return {
            "schema": "steadytrain.incident/1",
            "kind": self.kind,
            "run": self.run,
            "step": self.step,
            "stream": self.stream,
            "created": self.created,
            "symptoms": [symptom.to_json() for symptom in self.symptoms],
            "located": self.finding.located.to_json() if self.finding.located else None,
            "why": self.finding.why,
            "parameters": [tensor.to_json() for tensor in self.parameters],
            "action": self.action.to_json(),
            "losses": [number_to_json(loss) for loss in self.losses],
            "loss_origin": self.loss_origin,
            "micro_batches": self.micro_batches,
            "batch_note": self.batch_note,
            "state_note": self.state_note,
            "samples": [one.to_json() for one in self.samples],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Incident:
        return Incident(
            run=data["run"],
            step=data["step"],
            stream=data["stream"],
            created=data["created"],
            symptoms=tuple(Symptom.from_json(symptom) for symptom in data["symptoms"]),
            parameters=tuple(BadTensor.from_json(tensor) for tensor in data["parameters"]),
            action=Action.from_json(data["action"]),
            finding=Finding.from_json({"located": data["located"], "why": data["why"]}),
            losses=tuple(number_from_json(loss) for loss in data["losses"]),
            loss_origin=data["loss_origin"],
            micro_batches=data["micro_batches"],
            batch_note=data["batch_note"],
            state_note=data["state_note"],
            kind=data.get("kind", "nonfinite"),
            samples=tuple(Samples.from_json(one) for one in data.get("samples", ())),
        )


NO_PROGRESS = frozenset(
    {
        "no-learning",
        "plateau",
        "frozen-parameters",
        "lost-updates",
        "vanishing-gradients",
        "dead-units",
        "representation-collapse",
    }
)
"""Symptoms of a run that does not get better; what is looked for in a trial is that it does."""


def gravity(incident: Incident) -> tuple[bool, int, bool, int]:
    """The order of a run's incidents: what is not finite first, then by severity, then by step.

    Among those of one severity what rises comes before what does not get better: that it is removed shows in a few
    steps.
    """
    severity = worst([symptom.severity for symptom in incident.symptoms])
    slow = bool(incident.symptoms) and all(symptom.name in NO_PROGRESS for symptom in incident.symptoms)
    grade = len(SEVERITIES) if severity is None else len(SEVERITIES) - 1 - SEVERITIES.index(severity)
    return incident.kind != "nonfinite", grade, slow, incident.step
