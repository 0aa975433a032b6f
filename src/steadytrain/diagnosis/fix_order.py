"""The fixes of a cause in the order in which they are offered, each with what its trial showed. Pure.

First what was seen to work on the replay, then what took most of the symptom away, then what was not tried, then what
only gets past the step (``STOPGAPS``), and last what was tried and did not help. Within each group, a change that mends
the cause itself comes before one that only hides it (a smaller step), then what applies to the script before what does
not, then fast before invasive.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from steadytrain.diagnosis import interventions as shared
from steadytrain.diagnosis.answer import Remedy
from steadytrain.diagnosis.cause import Cause, Intervention, Signature
from steadytrain.experiments.specs import PRICE, WEAKENED, Verdict

if TYPE_CHECKING:  # reading an answer needs no trial
    from steadytrain.experiments.contrast import Contrast

Group = Literal["works", "weakens", "untried", "stopgap", "failed"]
GROUPS: tuple[Group, ...] = ("works", "weakens", "untried", "stopgap", "failed")

STOPGAPS = frozenset({shared.DROP_BATCH.name})
"""Fixes that leave the cause as it is, whatever their trial showed: a replay without the batch is a trial, no cure."""

_SHARED: tuple[Intervention, ...] = tuple(one for one in vars(shared).values() if isinstance(one, Intervention))

RATE_CUTS = frozenset(
    one.name
    for one in (
        *(shared.LOWER_RATE, shared.TENTH_RATE, shared.FAR_LOWER_RATE, shared.FARTHEST_LOWER_RATE),
        shared.HOLD_RATE,
    )
)
"""Fixes whose code changes the rate of the whole run. Where it jumped, only the jump is at fault."""

GUARDS = "safe-operation"
USUAL_IGNORED = "-100"
OF_NO_STEP = "continue  # in the step at fault, whose number is not known; the cause stays"

_USUAL_OPTIMIZER = re.compile(r"\bAdamW\(")


@dataclass(frozen=True)
class Hints:
    """What a learning rate that jumped should be kept at, "" without a jump, the code for the operation that was found
    outside its domain, "" without one, and the label that the script's loss ignores, if it is known."""

    kept_rate: str = ""
    guarded: str = ""
    ignored: int | None = None


@dataclass(frozen=True)
class OfScript:
    """What the code of a fix names: the class of the script's ``optimizer``, the ``step`` at fault, and hints."""

    optimizer: str | None = None
    step: int | None = None
    hints: Hints = Hints()

    def _keeps_rate(self, one: Remedy) -> bool:
        return bool(self.hints.kept_rate) and one.name in RATE_CUTS

    def once(self, made: Sequence[Remedy]) -> list[Remedy]:
        """The fixes without those of a rate that jumped that only tried to undo the jump: where one was seen to work,
        it is the same fix."""
        kept = [one for one in made if self._keeps_rate(one)]
        if not any(seen_to(one) == "works" for one in kept):
            return list(made)
        return [one for one in made if one not in kept or seen_to(one) == "works"]

    def what(self, one: Remedy) -> str:
        """What the fix does: of a rate that jumped, the jump is undone, whatever cut of it the replay made."""
        if self._keeps_rate(one):
            return f"keep the learning rate as it was; the replay made {one.what}"
        return one.what

    def code(self, one: Remedy) -> str:
        """The code of a fix with the script's own optimizer and step; without the step, in words."""
        if self._keeps_rate(one):
            return f"# {self.hints.kept_rate}"
        if self.hints.guarded and one.name == GUARDS:
            return self.hints.guarded
        name = (self.optimizer or "").rpartition(".")[2]
        made = _USUAL_OPTIMIZER.sub(f"{name}(", one.code) if name.isidentifier() else one.code
        made = made if self.hints.ignored is None else made.replace(USUAL_IGNORED, str(self.hints.ignored))
        if shared.AT_STEP not in made:
            return made
        return made.replace(shared.AT_STEP, str(self.step)) if self.step is not None else OF_NO_STEP


def remedies(
    cause: Cause,
    offered: Sequence[Intervention],
    verdicts: Sequence[Verdict],
    *,
    target: str,
    replayed: bool,
    refused: Mapping[str, str] | None = None,
    contrasts: Mapping[str, Contrast] | None = None,
    of_script: OfScript | None = None,
) -> tuple[Remedy, ...]:
    """The interventions in the order of this module.

    Args:
        target: the incident, for the commands. Those that need a replay are given if it was ``replayed``.
        refused: the trials that do not apply to this run, with the reason. A change that does not apply and does not
            mend the cause is not offered.
        contrasts: the placebos of the trials that would confirm.
        of_script: what the code of a fix names.
    """
    refused, contrasts = refused or {}, contrasts or {}
    by_trial = {one.trial: one for one in verdicts}
    mending = {one.name for one in offered if _mends(one, cause)}
    apply = [one for one in offered if one.name in mending or one.trial not in refused]
    offers = [*apply, *_unlisted(cause, offered, by_trial)]
    made = [_remedy(one, by_trial, target, replayed, refused, contrasts) for one in offers]
    script = of_script or OfScript()
    made = script.once([replace(one, code=script.code(one), what=script.what(one)) for one in made])
    order = {group: place for place, group in enumerate(GROUPS)}
    place = {one.name: (order[group_of(one)], one.name not in mending, one.trial in refused) for one in made}
    return tuple(sorted(made, key=lambda one: (*place[one.name], one.rung, one.name)))


def fitting(
    offered: Sequence[Intervention], signature: Signature, verdicts: Sequence[Verdict]
) -> tuple[Intervention, ...]:
    """The interventions that are meant for what was seen, and those that were tried; all if nothing fits."""
    told = {
        word for sign in signature.signs if sign.weight > 0 for word in (sign.source.partition(" ")[2], *sign.numbers)
    }
    tried = {one.trial for one in verdicts if one.effect != "not-run"}
    fit = tuple(one for one in offered if not one.of or told.intersection(one.of) or one.trial in tried)
    return fit or tuple(offered)


def group_of(one: Remedy) -> Group:
    """Where a fix is shown: what ran and removed the symptom works, unless it is a stopgap."""
    found = seen_to(one)
    return "stopgap" if one.name in STOPGAPS and found != "failed" else found


def seen_to(one: Remedy) -> Group:
    """What was seen of a fix: only what ran and removed the symptom works; what could not be run was not tried."""
    if one.tried == "removed":
        return "works"
    if one.tried == "inconclusive" and one.note.startswith(WEAKENED):
        return "weakens"
    return "untried" if one.tried in (None, "not-run") else "failed"


def _unlisted(
    cause: Cause, offered: Sequence[Intervention], verdicts: Mapping[str, Verdict]
) -> tuple[Intervention, ...]:
    """Trials of the proof that removed the symptom and that no listed intervention makes."""
    listed = {one.trial for one in offered}
    removed = [name for name in cause.confirming if name in verdicts and verdicts[name].effect == "removed"]
    known = {one.trial: one for one in reversed(_SHARED) if one.trial is not None}
    return tuple(known[name] for name in removed if name not in listed and name in known)


def _remedy(
    one: Intervention,
    verdicts: Mapping[str, Verdict],
    target: str,
    replayed: bool,
    refused: Mapping[str, str],
    contrasts: Mapping[str, Contrast],
) -> Remedy:
    verdict = verdicts.get(one.trial) if one.trial else None
    command = None
    if one.command:
        command = one.command.format(incident=shlex.quote(target))
    elif one.trial and replayed and one.trial not in refused and not _cannot_run(verdict):
        command = f"steadytrain verify {shlex.quote(target)} --with {one.trial}"
    tried = verdict.effect if verdict is not None else None
    return Remedy(
        one.name,
        one.rung,
        one.what,
        one.trial,
        tried,
        command,
        price=verdict.numbers.get(PRICE) if verdict is not None and tried == "removed" else None,
        code=one.code,
        note=_note(one, verdict, refused, contrasts),
    )


def _cannot_run(verdict: Verdict | None) -> bool:
    """Whether a trial does not fit the run, so that `verify` could not make it either; time may be had."""
    return verdict is not None and verdict.effect == "not-run" and "budget" not in verdict.why


def _note(
    one: Intervention, verdict: Verdict | None, refused: Mapping[str, str], contrasts: Mapping[str, Contrast]
) -> str:
    """Why a fix could not be tried, why its success proves nothing, or what it costs."""
    if one.trial is None:
        return ""
    if verdict is None:
        return refused.get(one.trial, "")
    if verdict.effect == "removed":
        from steadytrain.experiments.watched_rules import higher_loss  # the page of an answer needs no trial

        contrast = contrasts.get(one.trial)
        return contrast.why if contrast is not None and not contrast.held else higher_loss(verdict)
    return verdict.why


def _mends(one: Intervention, cause: Cause) -> bool:
    """Whether the change is made for this cause: its proof, or an intervention that no other cause shares."""
    return one.trial in cause.confirming if one.trial is not None and one in _SHARED else one not in _SHARED
