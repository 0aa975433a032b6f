"""What proves a cause, and what a proof still lacks.

There are three kinds of proof, each with its own control:

1. The unchanged replay shows the symptom, one change removes it, the cures of its rivals do not, and no trial
  contradicts the expectations.
2. A rule that every sound run keeps is broken, and the one change that repairs it removes the symptom.
3. A required equivalence fails while its own control holds (outputs depend on later inputs as well as on earlier ones;
  a model predicts another position better than the next).

A trial that removes the symptom proves a cause only with its contrast (``experiments.contrast``): it does so again with
another seed, and its placebo does not.

Nothing is confirmed if the replay is impossible or inexact, or without a survey for silent rivals: a gradient that is
never cleared looks like a rate that is too high.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from steadytrain.diagnosis.cause import CERTAIN, STRONG
from steadytrain.diagnosis.weighing import Suspect, plain
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import WEAKENED, Verdict


@dataclass(frozen=True)
class Control:
    """What the unchanged replays showed. ``exact`` is None if unknown, and ``note`` says it in words. ``judged`` is
    False if there was no symptom to show. ``early`` says whether the replays began before the symptom."""

    ran: bool
    shown: bool
    exact: bool | None
    note: str
    judged: bool = True
    early: bool = False


@dataclass(frozen=True)
class Proof:
    """Whether a cause is proven and ``by`` what; else which trials it ``needs``, the trial whose ``contrast`` is all
    that is still to be run, and in words what it ``lacks``."""

    proven: bool
    by: str = ""
    needs: tuple[str, ...] = ()
    lacks: str = ""
    contrast: str = ""


def proof(
    suspect: Suspect,
    verdicts: Mapping[str, Verdict],
    control: Control,
    waiting: Collection[str],
    *,
    surveyed: bool,
    contrasts: Mapping[str, Contrast],
) -> Proof:
    """The proof of one cause. ``waiting`` are the trials that can run but have not yet, ``contrasts`` those of trials
    that would confirm."""
    if suspect.signature.ruled_out:
        return Proof(False, lacks="its precondition is absent")
    needs = needed(suspect, verdicts, waiting)
    unsure = _replay_lacks(control)
    if unsure:
        return Proof(False, needs=needs, lacks=unsure)
    if suspect.signature.broken_equivalence is not None:
        return Proof(True, by=suspect.signature.broken_equivalence.what)
    unshown = _symptom_lacks(suspect, verdicts, control)
    if unshown:
        return Proof(False, needs=needs, lacks=unshown)
    mended = [trial for trial in suspect.cause.confirming if removes(verdicts, trial)]
    # A trial that did not hold against its placebo proves nothing; another one may.
    mended.sort(key=lambda trial: trial in contrasts and not contrasts[trial].held)
    cure = mended[0] if mended else None
    found = _by_broken_rule(suspect, cure) or _by_cure(suspect, verdicts, needs, cure, surveyed=surveyed)
    return _contrasted(found, cure, contrasts) if found.proven and cure is not None else found


def _contrasted(found: Proof, cure: str, contrasts: Mapping[str, Contrast]) -> Proof:
    """A proof that holds against the contrast of its trial, or what it lacks."""
    known = contrasts.get(cure)
    if known is None:
        lacks = f"{cure} removes it, but its placebo and a second seed were not run"
        return Proof(False, lacks=lacks, contrast=cure)
    if not known.held:
        return Proof(False, lacks=known.why)
    return replace(found, by=f"{found.by}; {known.why}" if known.why else found.by)


def _replay_lacks(control: Control) -> str:
    """Why the unchanged replay cannot support a proof, "" if it can."""
    if not control.ran:
        return f"nothing was replayed: {control.note}"
    if control.exact is None:
        return "the replay could not be compared with the run"
    return "" if control.exact else "the replay is not bit-identical"


def _symptom_lacks(suspect: Suspect, verdicts: Mapping[str, Verdict], control: Control) -> str:
    """What contradicts the cause in the trials, or that the control does not show the symptom; "" if neither holds."""
    contrary = contradictions(suspect, verdicts)
    if contrary:
        return "; ".join(_unexpected(trial, suspect.cause.expected(trial)) for trial in contrary)
    if control.shown:
        return ""
    return f"{'the unchanged replay does not show the symptom: ' if control.judged else ''}{control.note}"


def _by_broken_rule(suspect: Suspect, cure: str | None) -> Proof | None:
    """The second kind: a broken rule, and a change that repairs it and removes the symptom."""
    broken = suspect.signature.broken_invariant
    if broken is None or cure is None:
        return None
    return Proof(True, by=f"{broken.what}; {cure} removes the symptom")


def _by_cure(
    suspect: Suspect, verdicts: Mapping[str, Verdict], needs: tuple[str, ...], cure: str | None, *, surveyed: bool
) -> Proof:
    """The first kind: a change removes the symptom, and no cure of a rival does."""
    if cure is None:
        return Proof(False, needs=needs, lacks=_unmended(suspect, verdicts))
    if not surveyed:
        return Proof(False, needs=needs, lacks="no survey looked for silent causes that look the same")
    unseen = _evidence_lacks(suspect)
    if unseen:
        return Proof(False, lacks=f"{cure} removes it, but {unseen}")
    if needs:
        return Proof(False, needs=needs, lacks=f"{' and '.join(needs)} would separate it from its rivals")
    cured = [trial for trial in suspect.cause.spared if removes(verdicts, trial)]
    if cured:
        return Proof(False, lacks=f"{' and '.join(cured)} removes it, too")
    # A trial that does not apply to this run has no verdict: its rival is impossible here.
    asked = [trial for trial in suspect.cause.spared if trial in verdicts]
    spared = [trial for trial in asked if persists(verdicts, trial)]
    certain = any(sign.weight >= CERTAIN for sign in suspect.signature.signs)
    if certain and not spared:  # the cause itself was seen, so a rival's cure that leaves the run sick is enough
        spared = [trial for trial in asked if WEAKENED in verdicts[trial].numbers]
    if asked and not spared:
        return Proof(False, lacks=f"{' and '.join(asked)} did not separate it from its rivals")
    beside = f", {' and '.join(spared)} {'do' if len(spared) > 1 else 'does'} not" if spared else ""
    return Proof(True, by=f"{cure} removes the symptom{beside}")


def _evidence_lacks(suspect: Suspect) -> str:
    """What a cause must have been seen to do before a trial proves it, and was not; "" if nothing."""
    wanted = suspect.cause.evidence
    seen = any(sign.source in wanted and sign.weight >= STRONG for sign in suspect.signature.signs)
    seen = seen and suspect.signature.weight > 0
    return "" if seen or not wanted else "so would it under other causes, and it was not seen itself"


def needed(suspect: Suspect, verdicts: Mapping[str, Verdict], waiting: Collection[str]) -> tuple[str, ...]:
    """The trials that the proof still needs: one that confirms, then those that must not cure it."""
    cause = suspect.cause
    mended = any(removes(verdicts, trial) for trial in cause.confirming)
    confirming = () if mended else tuple(trial for trial in cause.confirming if trial in waiting)
    if suspect.signature.broken_invariant is not None:
        return confirming[:1]
    return (*confirming[:1], *(trial for trial in cause.spared if trial in waiting))


def _unexpected(trial: str, expected: str) -> str:
    if expected == "removed":
        return f"{trial} would remove the symptom if this were the cause; it did not"
    return f"{trial} would leave the symptom if this were the cause; it removed it"


def contradictions(suspect: Suspect, verdicts: Mapping[str, Verdict]) -> list[str]:
    """Trials with the opposite of the effect expected for this cause."""
    found = []
    for trial, verdict in verdicts.items():
        expected, outcome = suspect.cause.expected(trial), plain(verdict.effect)
        one_of = trial in suspect.cause.confirming and len(suspect.cause.confirming) > 1
        if outcome is not None and expected != "either" and outcome != expected and not one_of:
            found.append(trial)
    return found


def removes(verdicts: Mapping[str, Verdict], trial: str) -> bool:
    return trial in verdicts and verdicts[trial].effect == "removed"


def persists(verdicts: Mapping[str, Verdict], trial: str) -> bool:
    return trial in verdicts and verdicts[trial].effect in ("persists", "worse")


def _unmended(suspect: Suspect, verdicts: Mapping[str, Verdict]) -> str:
    names = suspect.cause.confirming
    ran = [trial for trial in names if trial in verdicts and verdicts[trial].effect != "not-run"]
    tried = [f"{trial} {WEAKENED if WEAKENED in verdicts[trial].numbers else verdicts[trial].effect}" for trial in ran]
    if not names:
        return "there is no trial of a change that mends it"
    if not tried:
        failed = [f"{trial}: {verdicts[trial].why}" for trial in names if trial in verdicts]
        if failed:
            return f"no change that mends it could be tried ({'; '.join(failed)})"
        return f"no change that mends it was tried ({', '.join(names)})"
    return f"no change that mends it removed the symptom ({', '.join(tried)})"
