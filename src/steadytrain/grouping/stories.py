"""Group symptoms into stories, order them, and put each story into words.

Symptoms belong together if one begins before the other ends, or within ``MARGIN_STEPS`` logged steps after it. A
condition that lasts for most of a run (a frozen parameter, dead units) joins the story of its onset but does not draw
in everything after it. A note joins a story but never holds one open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from steadytrain.core.json_values import JsonValue
from steadytrain.core.model import SEVERITIES, Severity, Symptom, Window, worst
from steadytrain.grouping.catalog import declared
from steadytrain.grouping.courses import told
from steadytrain.grouping.parts import wholes
from steadytrain.statistics.rolling_baseline import stride_of

NAME_MARKS = frozenset("._:/")
MARGIN_STEPS = 64
STANDING_STEPS = 512
"""A longer symptom holds its story open only for this many steps."""

TOLD_MAX = 4
OF_RATE = "the learning rate"
JUMP_RATIO = 1.5
WARM_UP_ROWS = 3

_ORDER = (
    ("learning_rate", 0),
    ("tensors.update", 0),
    ("tensors.unchanged", 0),
    ("gradient", 1),
    ("tensors.gradient", 1),
    ("loss_scale", 1),
    ("scaler", 1),
    ("modules", 2),
    ("tensors", 2),
    ("loss", 3),
)
"""What moves what, for symptoms of one step: an update, then gradients, then activations, then the loss. These are
signals of the core. A NaN follows the order of the step itself, as its detector declares."""


@dataclass(frozen=True)
class Story(JsonValue, keys="story:number severity first_step last_step symptoms:names text"):
    """Symptoms that belong together, in the order of their onset."""

    number: int
    severity: Severity
    first_step: int
    last_step: int
    symptoms: tuple[Symptom, ...]
    text: str

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(symptom.name for symptom in self.symptoms)

    @property
    def course_line(self) -> str:
        """The names in order and the course, for readers who already have the messages; "" if that adds nothing."""
        names = list(dict.fromkeys(symptom.name for symptom in wholes(self.symptoms)))
        course = told(_gravest(self.symptoms))
        if len(names) < 2 and not course:
            return ""
        single = self.first_step == self.last_step
        where = f"Step {self.first_step}" if single else f"Steps {self.first_step} to {self.last_step}"
        return f"{where}: {', then '.join(names)}{f'; {course}' if course else ''}."


def tell(symptoms: Sequence[Symptom], window: Window) -> tuple[Story, ...]:
    """The stories of one stream in the order of their onset, numbered from 1."""
    stride = stride_of(window.steps)
    groups: list[list[Symptom]] = []
    open_until = -1
    for symptom in sorted(symptoms, key=by_time):
        if not groups or symptom.first_step > open_until + MARGIN_STEPS * stride:
            groups.append([])
            open_until = -1
        groups[-1].append(symptom)
        held = symptom.first_step if symptom.severity == "note" else symptom.last_step
        open_until = max(open_until, min(held, symptom.first_step + STANDING_STEPS * stride))
    return tuple(_story(number, group, window, stride) for number, group in enumerate(groups, start=1))


def _story(number: int, group: Sequence[Symptom], window: Window, stride: int) -> Story:
    symptoms = tuple(replace(symptom, story=number) for symptom in group)
    severity = worst([symptom.severity for symptom in symptoms])
    assert severity is not None
    return Story(
        number=number,
        severity=severity,
        first_step=min(symptom.first_step for symptom in symptoms),
        last_step=max(symptom.last_step for symptom in symptoms),
        symptoms=symptoms,
        text=_text(symptoms, window, MARGIN_STEPS * stride),
    )


def _text(symptoms: Sequence[Symptom], window: Window, margin: int) -> str:
    """What came before, what moved first, what followed, and the course of the gravest symptom. What is only a part of
    another symptom is left out; beside an alarm, notes are named alone. A condition that had lasted for more than
    ``margin`` steps when something graver came did not lead to it as far as anybody knows: it follows at the end."""
    names = list({symptom.name: symptom for symptom in reversed(wholes(symptoms))}.values())[::-1]
    alarms = [symptom for symptom in names if symptom.severity != "note"]
    notes = [symptom.name for symptom in names if symptom.severity == "note"] if alarms else []
    names = alarms or names
    lasting = _lasting(names, margin)
    names = [symptom for symptom in names if symptom not in lasting]
    led_by = next(symptom for symptom in symptoms if symptom not in lasting)
    prelude = _prelude(window, led_by.first_step, margin)
    if any(symptom.message.startswith(OF_RATE) for symptom in names):
        prelude = [one for one in prelude if not one.startswith(OF_RATE)]  # a symptom tells it with more
    broken = [symptom for symptom in names if is_of_nonfinite(symptom)]
    names = [symptom for symptom in names if symptom not in broken[1:]]
    text = "; then ".join([*prelude, names[0].message])
    for before, symptom in pairwise(names[:TOLD_MAX]):
        # A log does not show which of two things at one step came first.
        text += f"; {'then' if symptom.first_step > before.first_step else 'with it,'} {symptom.message}"
    if len(names) > TOLD_MAX:
        more = len(names) - TOLD_MAX
        text += f"; then {more} more symptom{'s' if more > 1 else ''}"
    text += f"; {of_nonfinite(len(broken) - 1)}" if len(broken) > 1 else ""
    if notes:
        text += f" (notes beside it: {', '.join(notes)})"
    sentences = [capital(text), *(f"Already before: {symptom.message}" for symptom in lasting[:TOLD_MAX])]
    ending = told(_gravest(symptoms))
    if ending and ending not in sentences[0]:
        sentences.append(capital(ending))
    return " ".join(f"{sentence}." for sentence in sentences)


def _lasting(symptoms: Sequence[Symptom], margin: int) -> list[Symptom]:
    """What had lasted for more than ``margin`` steps at the first symptom that is graver, and did not end before it."""
    worst_at = next((one for one in symptoms if one.severity == _gravest(symptoms).severity), None)
    if worst_at is None:
        return []
    return [
        symptom
        for symptom in symptoms
        if symptom.severity != worst_at.severity
        and symptom.first_step < worst_at.first_step - margin
        and symptom.last_step >= worst_at.first_step
    ]


def is_of_nonfinite(symptom: Symptom) -> bool:
    """Whether it is about NaN or Inf: a story names the first of several, and the others follow from it."""
    return declared(symptom.name).nonfinite_rank is not None


def of_nonfinite(count: int) -> str:
    """How many symptoms follow from NaN or Inf, in words."""
    return f"{count} more symptoms follow from it" if count > 1 else "1 more symptom follows from it"


def _prelude(window: Window, first_step: int, before: int) -> list[str]:
    """Changes to the run in the steps ``before``: a jump of the learning rate or of the step number."""
    found = [
        (int(step), f"the run goes on at step {step}, as after a resume")
        for step in window.resumed[(window.resumed <= first_step) & (window.resumed > first_step - before)][-1:]
    ]
    rows = slice(*np.searchsorted(window.steps, [first_step - before, first_step + 1]).tolist())
    if "learning_rate" in window.signals:
        here = window.present["learning_rate"][rows] & (window.signals["learning_rate"][rows] > 0)
        steps, rates = window.steps[rows][here], window.signals["learning_rate"][rows][here]
        # The first steps of a warm-up double the rate, too, also those after a first one at a rate of 0.
        start = WARM_UP_ROWS if len(rates) and rows.start == 0 else 0
        ratios = rates[start + 1 :] / rates[start:-1] if len(rates) > start + 1 else np.zeros(0)
        if len(ratios) and ratios.max() > JUMP_RATIO:
            at = start + 1 + int(np.argmax(ratios))
            step, old, new = int(steps[at]), rates[at - 1], rates[at]
            found.append((step, f"the learning rate went from {old:.3g} to {new:.3g} at step {step}"))
    return [text for _, text in sorted(found)]


def capital(text: str) -> str:
    """``text`` as the beginning of a sentence; a name such as ``train.py:17`` or ``fc.weight`` stays as it is."""
    first = text.partition(" ")[0].rstrip(".,;:")
    return text if NAME_MARKS & set(first) else text[:1].upper() + text[1:]


def _gravest(symptoms: Sequence[Symptom]) -> Symptom:
    """The gravest symptom; of several equally grave ones the first that has a course."""
    return max(symptoms, key=lambda symptom: (SEVERITIES.index(symptom.severity), symptom.course is not None))


def by_time(symptom: Symptom) -> tuple[int, int, str]:
    """The order of onset: by first step, within a step in the order in which it computes the signals, then by name."""
    rank = declared(symptom.name).nonfinite_rank
    if rank is None:
        ranks = (rank for name in symptom.signals for start, rank in _ORDER if name.startswith(start))
        rank = min(ranks, default=3)
    return symptom.first_step, rank, symptom.name
