"""The contract of a trial: it plans specs for a case and judges their outcomes.

A trial with its own logic is a final class in ``experiments/trials/``. A trial that only makes a change is a row in
``experiments/trial_tables/`` (``trial_rows``). Your own package can offer either under the entry-point group
``steadytrain.trials``. Not here: the values that a trial plans and judges (``specs``), and how it runs
(``steadytrain.trial_runs``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from steadytrain.core.plugins import kebab
from steadytrain.experiments.case import Case
from steadytrain.experiments.judging import judge
from steadytrain.experiments.specs import NotApplicable, Outcome, Placebo, Spec, Verdict

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

AXES: Mapping[str, str] = {
    "data": "batches, labels, tokens, their order",
    "model": "architecture, initialisation, what a layer computes",
    "loss": "what is minimised, and on which positions",
    "optimizer": "optimizer, its state, learning rate and schedule",
    "precision": "dtypes, kernels, compiled code",
    "distributed": "several ranks, or a race",
    "hardware": "a fault of the machine",
    "harness": "modes, clearing, accumulating, clipping, resuming",
}
"""The axes on which a fault can lie. A cause declares its own, a trial the one on which its change lies."""


def axis_word(name: str) -> str:
    """An axis as it is shown: the one of the training loop has another name in documents."""
    return "training loop" if name == "harness" else name


ONE_DIFFERENCE = "it compares two runs that differ in this alone"
"""Why a trial with a control of its own has no placebo."""


class Trial(ABC):
    """The contract. Subclasses are final and have no state.

    The docstring is the documentation: a first sentence, then ``Changes`` (what is different), ``Tells`` (which causes
    it speaks for and against) and ``Beware`` (what else it changes).
    """

    control: bool = False
    """Whether it shows how often the symptom occurs without a relevant change (unchanged, perturbed)."""

    always: bool = False
    """Whether it always runs, whichever trials are requested."""

    fix: int = 0
    """The ``repeat`` of the spec that applies the change as a fix; other specs of the plan serve for comparison."""

    removes: str = ""
    """The ``KINDS`` of causes whose symptom it removes, separated by spaces."""

    either: str = ""
    """The ``KINDS`` whose symptom it may or may not remove. For all other kinds the symptom persists."""

    axis: str = ""
    """The axis (``AXES``) on which the fault lies if this trial removes the symptom. None if it says nothing: a lower
    rate helps against nearly everything."""

    alike: str = ""
    """A group of trials with nearly the same change (``smaller steps``). Together they count as one."""

    other_loss: bool = False
    """Whether it changes what the loss measures, so that its fall is not comparable with the control's."""

    own_control: bool = False
    """Whether it has a control of its own: a second run that trains as the script does and measures what this one does.
    Then it needs no placebo."""

    group_test: bool = False
    """Whether it disables a whole branch of causes at once, which makes it worth running early."""

    rate_only: bool = False
    """Whether it changes only the learning rate: a smaller rate makes smaller updates, which is no cure."""

    own_scale: bool = False
    """Whether it changes what the loss or the gradient measures (another function, other weights), so that the run's
    range before the onset is no reference for its health: its own start is."""

    within_step: bool = False
    """Whether its change acts within one step: on its batch, its forward, its backward. Then a trial of a single bad
    step may start right before it."""

    @property
    def name(self) -> str:
        """The name in kebab case: ``DropBatch`` in ``experiments/trials/drop_batch.py`` is ``drop-batch``."""
        return kebab(type(self))

    @abstractmethod
    def plan(self, case: Case) -> tuple[Spec, ...] | NotApplicable:
        """The specs to run, or why the trial does not apply."""

    def judge(self, case: Case, controls: Sequence[Outcome], outcomes: Sequence[Outcome]) -> Verdict:
        """Judge ``outcomes`` of this trial against those of the controls. Pure."""
        scaled = self.own_scale or self.other_loss
        return judge(self.name, case, controls, outcomes, rate_only=self.rate_only, own_scale=scaled)

    def placebo(self, case: Case) -> Placebo | NotApplicable | None:
        """A change of the same size that spares what this trial changes: another batch left out, another layer. What it
        does as well, this trial does not prove. None is the usual placebo: weights moved at random by as much as one
        update moves them (``random-step``)."""
        return NotApplicable(ONE_DIFFERENCE) if self.own_control else None
