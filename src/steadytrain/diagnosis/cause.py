"""What a cause promises, and the few shapes in which it says it.

A cause is a class without state. ``signature(case)`` reads what was recorded and gives signs, each with its weight in
nats of log-odds; ``expects`` says what each trial would do if this cause were the true one; ``confirming`` and
``spared`` say which trials prove it. Its docstring is its documentation: first sentence, then ``Means``, ``Causes`` and
``Next`` (``steadytrain explain NAME``). Pure: no torch, no files. Not here: weighing causes against each other, which
is ``steadytrain.diagnosis``.
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
"""Weight of a sign that is twice as common with this cause as without it."""

FAIR = 1.6
"""Five times as common."""

STRONG = 3.0
"""Twenty times: seldom there without this cause."""

CERTAIN = 6.5
"""An invariant that fails, or an operation that a re-run saw fail: not there without this cause, errors aside."""

UNSEEN = -3.0
"""Of a cause that nothing speaks for: the zoo has sick runs with a cause whose signs were missed about this often."""

RULED_OUT = -9.0
"""What the cause needs is not there at all: float16 overflow in a run that uses no float16."""


@dataclass(frozen=True)
class Sign:
    """One observation. ``weight`` above 0 speaks for the cause, below 0 against it.

    ``source`` is where it was seen (``fact labels_shift``, ``symptom loss-spike``, ``finding``, ``window``).
    ``invariant`` marks a rule that every sound run keeps and that was seen broken: with it, one trial that mends just
    this is proof. ``equivalence`` marks one whose test has its own control, so that it alone is proof.
    """

    what: str
    weight: float
    source: str
    numbers: Mapping[str, float] = field(default_factory=dict)
    invariant: bool = False
    equivalence: bool = False


@dataclass(frozen=True)
class Signature:
    """What a case shows of one cause, with the layer and the rows of the batch that are involved."""

    signs: tuple[Sign, ...] = ()
    layer: str | None = None
    batch_rows: tuple[int, ...] = ()

    @property
    def weight(self) -> float:
        """Sum of the signs in nats; a cause that nothing speaks for gets ``UNSEEN`` besides."""
        speaks = any(sign.weight > 0 for sign in self.signs)
        return sum(sign.weight for sign in self.signs) + (0.0 if speaks else UNSEEN)

    @property
    def ruled_out(self) -> bool:
        return any(sign.weight <= RULED_OUT for sign in self.signs)

    @property
    def broken_invariant(self) -> Sign | None:
        """The gravest of the rules that were seen broken."""
        broken = [sign for sign in self.signs if sign.invariant and sign.weight > 0]
        return max(broken, key=lambda sign: sign.weight, default=None)

    @property
    def broken_equivalence(self) -> Sign | None:
        """An equivalence that does not hold, where its control does."""
        return next((sign for sign in self.signs if sign.equivalence and sign.weight > 0), None)


@dataclass(frozen=True)
class Intervention:
    """A change that may mend it. ``rung`` goes from fast (1) to invasive (7), as people try them; ``trial`` is the
    trial whose change this is, so that ``steadytrain verify`` can try it, None where only a hand can do it.

    A cause lists its own. One that is added elsewhere (entry-point group ``steadytrain.interventions``) names the
    causes that it ``mends``."""

    name: str
    rung: int
    what: str
    trial: str | None = None
    mends: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        is_code = any(letter.isdigit() for letter in self.what.partition(" ")[0])  # float32 stays as it is
        what = self.what if is_code else f"{self.what[:1].upper()}{self.what[1:]}"
        object.__setattr__(self, "__doc__", f"{what}.")  # documented as a class is


class Cause(ABC):
    """The contract of a cause. Subclasses are final and have no fields.

    ``base_rate`` is how common it is relative to the others before anything is known: threads of the survey that the
    project rests on, in which counts rank causes and do not measure prevalence. ``rivals`` look the same at first sight
    and trials separate them; of two rivals one declares the other, and the relation holds both ways. ``expects`` names
    what each trial does if this is the cause; a trial that is not named persists. Any of ``confirming`` that removes
    the symptom is the proof, provided that none of ``spared`` does: those are what the rivals would be cured by.
    """

    base_rate: ClassVar[float]
    rivals: ClassVar[tuple[str, ...]] = ()
    expects: ClassVar[Mapping[str, Expectation]]
    confirming: ClassVar[tuple[str, ...]] = ()
    spared: ClassVar[tuple[str, ...]] = ()
    interventions: ClassVar[tuple[Intervention, ...]]
    grade: ClassVar[Grade]
    source: ClassVar[str]

    @abstractmethod
    def signature(self, case: Case) -> Signature:
        """What ``case`` shows of this cause. A pure function of the case."""

    def expected(self, trial: str) -> Expectation:
        """What ``trial`` does if this is the cause."""
        return self.expects.get(trial, "persists")
