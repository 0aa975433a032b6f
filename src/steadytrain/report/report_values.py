"""The values of a report, plain and frozen: the build makes them and the renderers draw them."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.core.model import Severity
from steadytrain.report.diagnosis_shown import DiagnosisPart
from steadytrain.report.first_screen import FirstScreen
from steadytrain.report.heat import Heat
from steadytrain.report.layers import LayerGroup
from steadytrain.report.thinned_curves import Curve
from steadytrain.report.wording import Fact


@dataclass(frozen=True)
class Command:
    """A command worth running next, and its purpose."""

    purpose: str
    line: str


@dataclass(frozen=True)
class SymptomRow:
    """A symptom as shown. ``steps`` is its range as text; ``origin`` is the stream or rank if it is not the main one.

    Symptoms of one ``story`` stand together in the order of their onset; ``story`` is "" without one.
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
    line: str = ""
    """The line of the script that ``message`` names, such as ``train.py:17``, and its ``code``."""

    code: str = ""
    stream: str = ""
    """As that of the curves on which it is drawn."""


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
    """One incident as shown. ``place`` is None if the operation is unknown; ``why`` then says why ("" if nothing was
    non-finite). ``look`` holds the lines of the other measurements of ``steadytrain locate``. ``is_note`` says that the
    incident is no alarm."""

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
    is_note: bool = False
    parameters_count: int = 0
    """Tensors with a bad gradient in all; ``parameters`` holds the first."""

    line: str = ""
    """The line of the script that its first symptom names, such as ``train.py:17``, and its ``code``."""

    code: str = ""
    subject: str = ""
    """Its first symptom, and the optimizer where there are several: ``loss-spike of critic_optimizer``."""


@dataclass(frozen=True)
class Section:
    """A titled group of facts of the environment, optionally with one long text (a printed model)."""

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
    """What the tables of a stream contain: maps of all layers, each layer, precision and machine.

    ``sentences`` say what is not drawn. ``stream`` is "" if the run has only one.
    """

    stream: str
    heats: tuple[Heat, ...]
    groups: tuple[LayerGroup, ...]
    topics: tuple[Topic, ...]
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Report:
    """Everything that a page or a terminal shows, most urgent first.

    ``brief`` is a few lines of ``facts`` for a terminal. ``measured`` is for a page and may be left out.
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
    first: FirstScreen | None = None
