"""What a report holds, as plain frozen values: the build makes them and the renderers draw them."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.core.model import Severity
from steadytrain.report.diagnosis_shown import DiagnosisPart
from steadytrain.report.heat import Heat
from steadytrain.report.layers import LayerGroup
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.wording import Fact


@dataclass(frozen=True)
class Command:
    """A command worth running next, and what it is for."""

    purpose: str
    line: str


@dataclass(frozen=True)
class SymptomRow:
    """A symptom as shown. ``steps`` is the range as text, ``origin`` the stream or rank when it is not the main one.

    Symptoms of one ``story`` stand together, in the order in which they came; it is empty where none was told.
    """

    name: str
    severity: Severity
    first_step: int
    last_step: int
    steps: str
    origin: str
    message: str
    tensors: str
    story: str = ""


@dataclass(frozen=True)
class Place:
    """The first bad operation as shown."""

    operation: str
    produced: str
    phase: str
    module: str
    line: str
    code: str
    inputs: tuple[Fact, ...]
    chain: tuple[str, ...]
    reached: str
    method: str


@dataclass(frozen=True)
class IncidentPart:
    """One incident as shown; ``place`` is None where the operation is not known and ``why`` says why ("" where nothing
    was not finite). ``look`` are the lines of what ``steadytrain locate`` saw beside it."""

    title: str
    path: str
    step: int
    place: Place | None
    why: str
    losses: str
    parameters: tuple[Fact, ...]
    action: str
    notes: tuple[str, ...]
    look: tuple[Fact, ...] = ()


@dataclass(frozen=True)
class Section:
    """A titled group of facts of the environment, with one longer text (a printed model) where there is one."""

    title: str
    facts: tuple[Fact, ...]
    text: str = ""


@dataclass(frozen=True)
class Topic:
    """A titled section of facts, sentences and curves: precision, machine."""

    title: str
    facts: tuple[Fact, ...]
    sentences: tuple[str, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Measured:
    """What the tables of a stream tell: maps of all layers, each layer by itself, precision and machine.

    ``sentences`` say what is not drawn. ``stream`` is empty where the run has but one.
    """

    stream: str
    heats: tuple[Heat, ...]
    groups: tuple[LayerGroup, ...]
    topics: tuple[Topic, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """All that a page or a terminal shows, in the order in which a tired person needs it.

    ``brief`` is ``facts`` in a few lines, for a terminal. ``measured`` is for a page and may be left out.
    """

    title: str
    verdict: str
    severity: Severity | None
    summary: tuple[str, ...]
    facts: tuple[Fact, ...]
    brief: tuple[Fact, ...]
    curves: tuple[Curve, ...]
    symptoms: tuple[SymptomRow, ...]
    incidents: tuple[IncidentPart, ...]
    commands: tuple[Command, ...]
    notes: tuple[str, ...]
    environment: tuple[Section, ...]
    measured: tuple[Measured, ...] = ()
    diagnosis: DiagnosisPart | None = None
