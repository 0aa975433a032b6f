"""What a trial promises: it plans specs for a case, and judges what came of them.

A trial is a final class in ``experiments/trials/`` where it has logic of its own, or a row in ``experiments/
trial_tables/`` where it only makes a change (``trial_rows``). A package of your own offers either under the entry-point
group ``steadytrain.trials``. Not here: the values that it plans and judges (``specs``), and how it is run
(``steadytrain.trial_runs``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from steadytrain.core.plugins import kebab
from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.specs import NotApplicable, Outcome, Spec, Verdict

KINDS: Mapping[str, str] = {
    "data": "one batch does the harm",
    "rate": "steps are too long",
    "moments": "the optimizer's moments lag behind its gradients",
    "state": "the optimizer's state is not that of its weights",
    "logits": "attention logits grow",
    "half": "16 bits are too few",
    "kernel": "compiled code or a kernel computes something else",
    "transient": "it does not come again",
    "ranks": "ranks do not train together",
    "shift": "the data changed and stays so",
    "operation": "an operation meets its singular point",
    "script": "a fault in the script itself, which its own trial mends",
}
"""Kinds of causes. A trial names those that it acts on; a cause names its own kind, and its exceptions."""


class Trial(ABC):
    """The contract. Subclasses are final and have no state.

    The docstring is the documentation: a first sentence, then ``Changes`` (what is different), ``Tells`` (which causes
    it speaks for and against) and ``Beware`` (what else it changes).
    """

    control: bool = False
    """Whether it shows how often the symptom comes without a change that matters (unchanged, perturbed)."""

    always: bool = False
    """Whether it runs beside whatever trial is asked for."""

    fix: int = 0
    """The ``repeat`` of the spec that is the change as a fix; others of the plan are there to compare with."""

    removes: str = ""
    """The ``KINDS`` of causes whose symptom it removes, separated by spaces."""

    either: str = ""
    """The ``KINDS`` of which it may remove the symptom or not; of all others the symptom persists."""

    alike: str = ""
    """A group of trials that change nearly the same thing (``smaller steps``): together they count as one."""

    other_loss: bool = False
    """Whether it changes what the loss measures: how far that falls cannot be compared with the control's fall."""

    group_test: bool = False
    """Whether it switches a whole branch of causes off at once, so that it is worth running early."""

    rate_only: bool = False
    """Whether it changes nothing but the learning rate: a smaller rate makes smaller updates, which is no cure."""

    @property
    def name(self) -> str:
        """``DropBatch`` is ``drop-batch`` in ``experiments/trials/drop_batch.py``."""
        return kebab(type(self))

    @abstractmethod
    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        """What is to be run, or why nothing can be."""

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """What ``outcomes`` of this trial say against those of the controls; pure."""
        return judge(self.name, case, controls, outcomes, rate_only=self.rate_only)
