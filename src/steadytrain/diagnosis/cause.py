"""The contract of a cause, and the values that it returns.

A cause is a class without state. ``signature(case)`` reads what was recorded and returns signs, each with its weight in
nats of log-odds. ``expects`` says what each trial would do if this cause were true. ``confirming`` and ``spared`` name
the trials that prove it. Its docstring is its documentation: first sentence, then ``Means``, ``Causes`` and ``Next``
(``steadytrain explain NAME``). Pure: no torch, no files. Not here: weighing causes against each other, which is
``steadytrain.diagnosis``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from steadytrain.experiments.case import Case

Expectation = Literal["removed", "persists", "either"]
Grade = Literal["A", "B", "C", "D"]

HINT = 0.7
"""Weight of a sign that is twice as frequent with this cause as without it."""

FAIR = 1.6
"""Weight of a sign that is five times as frequent with this cause."""

STRONG = 3.0
"""Weight of a sign that is twenty times as frequent: rare without this cause."""

CERTAIN = 6.5
"""Weight of a broken invariant, or an operation that failed in a re-run: absent without this cause, apart from
errors.
"""

UNSEEN = -3.0
"""Weight of a cause without a positive sign. About this often, the signs of a true cause were missed on the zoo's sick
runs.
"""

RULED_OUT = -9.0
"""Weight if a precondition of the cause is absent: float16 overflow in a run without float16."""


@dataclass(frozen=True)
class Sign:
    """One observation. A positive ``weight`` supports the cause, a negative one contradicts it.

    ``source`` is its origin (``fact labels_shift``, ``symptom loss-spike``, ``finding``, ``window``). ``invariant``
    marks a broken rule that every sound run keeps: one trial that repairs just this is then a proof. ``equivalence``
    marks a test that has its own control, so that it alone is a proof.
    """

    what: str
    weight: float
    source: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    invariant: bool = False
    equivalence: bool = False


@dataclass(frozen=True)
class Signature:
    """The signs of one cause in a case, with the layer and the batch rows involved. ``axis`` is where the fault lies in
    this case, "" for the axis of the cause."""

    signs: tuple[Sign, ...] = ()
    layer: str | None = None
    batch_rows: tuple[int, ...] = ()
    axis: str = ""

    @property
    def weight(self) -> float:
        """Sum of the signs in nats, plus ``UNSEEN`` if no sign is positive."""
        speaks = any(sign.weight > 0 for sign in self.signs)
        return sum(sign.weight for sign in self.signs) + (0.0 if speaks else UNSEEN)

    @property
    def ruled_out(self) -> bool:
        return any(sign.weight <= RULED_OUT for sign in self.signs)

    @property
    def broken_invariant(self) -> Sign | None:
        """The broken rule with the largest weight, None if there is none."""
        broken = [sign for sign in self.signs if sign.invariant and sign.weight > 0]
        return max(broken, key=lambda sign: sign.weight, default=None)

    @property
    def broken_equivalence(self) -> Sign | None:
        """An equivalence that fails while its control holds, None if there is none."""
        return next((sign for sign in self.signs if sign.equivalence and sign.weight > 0), None)


@dataclass(frozen=True)
class Intervention:
    """A change that may fix a cause. ``rung`` goes from fast (1) to invasive (7), in the order in which people try
    them. ``trial`` names the trial with the same change, so that ``steadytrain verify`` can test it; None if only a
    person can make it. ``code`` is a line of code that makes it in a script. ``command`` is a command line that makes
    it, with ``{incident}`` in place of the incident.

    A cause lists its own interventions. One from elsewhere (entry-point group ``steadytrain.interventions``) names the
    causes that it ``mends``."""

    name: str
    rung: int
    what: str
    trial: str | None = None
    mends: tuple[str, ...] = ()
    code: str = ""
    command: str = ""
    of: tuple[str, ...] = ()
    """Symptoms, facts, or numbers of signs that it is meant for; empty for all that speak for its cause."""

    def __post_init__(self) -> None:
        is_code = any(letter.isdigit() for letter in self.what.partition(" ")[0])  # float32 stays lower-case
        what = self.what if is_code else f"{self.what[:1].upper()}{self.what[1:]}"
        object.__setattr__(self, "__doc__", f"{what}.")  # documented like a class


class Cause(ABC):
    """The contract of a cause. Subclasses are final and have no fields.

    ``base_rate`` is its prior frequency relative to the others, from counts of public threads, which rank causes but do
    not measure prevalence. ``rivals`` look the same at first and are separated by trials; one of two rivals declares
    the other, and the relation holds both ways. ``expects`` names what each trial does if this is the cause; after a
    trial that it does not name, the symptom persists. A trial of ``confirming`` that removes the symptom is the proof,
    unless one of ``spared`` does, too: those would cure the rivals.
    """

    axis: ClassVar[str] = ""
    """The axis on which the fault lies (``experiments.trial.AXES``). A cause that declares none has that of
    its kind."""

    base_rate: ClassVar[float]
    rivals: ClassVar[tuple[str, ...]] = ()
    expects: ClassVar[Mapping[str, Expectation]]
    evidence: ClassVar[tuple[str, ...]] = ()
    """Sources of signs of which one, of at least STRONG, must support the cause before a trial proves it: where what
    removes the symptom would cure other causes just as well. Empty if the trial alone tells them apart."""

    confirming: ClassVar[tuple[str, ...]] = ()
    spared: ClassVar[tuple[str, ...]] = ()
    interventions: ClassVar[tuple[Intervention, ...]]
    grade: ClassVar[Grade]
    source: ClassVar[str]

    @abstractmethod
    def signature(self, case: Case) -> Signature:
        """The signs of this cause in ``case``. A pure function of the case."""

    def expected(self, trial: str) -> Expectation:
        """The effect of ``trial`` if this is the cause."""
        return self.expects.get(trial, "persists")
