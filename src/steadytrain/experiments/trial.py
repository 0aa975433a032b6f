"""What a trial promises: a plan for a case, and a verdict on what came of it. Its values are in ``specs``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from steadytrain.core.plugins import kebab
from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.specs import NotApplicable, Outcome, Spec, Verdict


class Trial(ABC):
    """One file each in ``steadytrain/experiments/trials/``; found by being there. Subclasses are final and have no
    state.

    The docstring is the documentation: a first sentence, then ``Changes`` (what is different), ``Tells`` (which causes
    it speaks for and against) and ``Beware`` (what else it changes). ``control`` is True of the unchanged and the
    perturbed replays: they show how often the symptom comes by itself.
    """

    control: ClassVar[bool] = False
    fix: ClassVar[int] = 0
    """The ``repeat`` of the spec that is the change as a fix; others of the plan are there to compare with."""

    @property
    def name(self) -> str:
        """``DropBatch`` is ``drop-batch`` in ``experiments/trials/drop_batch.py``."""
        return kebab(type(self))

    @abstractmethod
    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        """What is to be run, or why nothing can be."""

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """What ``outcomes`` of this trial say against those of the controls; pure."""
        return judge(self.name, case, controls, outcomes)
