"""Statuses, evidence for and against, and the verdict in one sentence.

| status | when |
|---|---|
| confirmed | proven (``proof``), and more than 0.8 of the probability |
| likely | at least half of the probability, and a trial (its own cure did not fail), a broken rule or an operation |
| possible | at least 0.05, and a positive sign or a cure |
| refuted | plausible before the trials, contradicted since |

A note did no lasting harm, so a cause of it is at most possible, unless a rule is broken. So is a cause of which two
cures or more failed.

If two causes are each cured by their own change, and either change is enough, they acted together: an ordinary hard
batch met a vulnerable state. The answer says so, and confirms neither.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath

from steadytrain.core.incident import Located
from steadytrain.core.model import Symptom
from steadytrain.diagnosis.answer import (
    SIGNATURE,
    STATUSES,
    UNKNOWN,
    Diagnosis,
    Evidence,
    EvidenceVerdict,
    RankedCause,
    Status,
    TrialRow,
)
from steadytrain.diagnosis.axis import axis_found
from steadytrain.diagnosis.cause import CERTAIN
from steadytrain.diagnosis.cause_catalog import interventions_of
from steadytrain.diagnosis.fix_order import Hints, OfScript, fitting, remedies
from steadytrain.diagnosis.proof import Control, Proof, proof
from steadytrain.diagnosis.weighing import Suspect, plain, weigh
from steadytrain.experiments.contrast import Contrast
from steadytrain.experiments.specs import UNCHANGED, Effect, Verdict

CONFIRMED_MIN, LIKELY_MIN, POSSIBLE_MIN = 0.8, 0.5, 0.05
CURES_MIN = 2
"""Cures of a cause that fail before only a broken rule makes it likely."""

SHOWN_MAX = 8
"""Maximum number of causes in an answer."""


@dataclass(frozen=True)
class Circumstances:
    """What a conclusion needs besides signs and verdicts.

    ``symptom`` describes the symptom in a sentence, "" if there was nothing above a note. ``surveyed`` says whether a
    survey looked for silent causes, ``waiting`` lists trials that could run but did not, ``target`` is the incident.
    ``of_note`` says that the incident is that of a note. ``contrasts`` are those of the trials that would confirm,
    ``refused`` the trials that do not apply, with the reason. ``optimizer`` is the class of the script's, ``onset``
    the step at which the symptom begins, ``hints`` what the code of fixes names, ``located`` the first bad operation.
    """

    symptom: str
    control: Control
    surveyed: bool
    waiting: Collection[str]
    target: str
    spent: bool = False
    of_note: bool = False
    contrasts: Mapping[str, Contrast] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    optimizer: str | None = None
    onset: int | None = None
    hints: Hints = field(default_factory=Hints)
    located: Located | None = None


def in_words(symptom: Symptom | None) -> str:
    """The symptom as an answer tells it, "" for none above a note."""
    return f"{symptom.name}: {symptom.message}" if symptom is not None and symptom.severity != "note" else ""


def conclude(
    suspects: Sequence[Suspect], verdicts: Sequence[Verdict], known: Circumstances, *, absent: Sequence[Verdict] = ()
) -> Diagnosis:
    """The answer. ``absent`` are trials that do not apply, for the table. Pure: equal arguments give an equal
    answer.
    """
    belief, before = weigh(suspects, verdicts, known.contrasts), weigh(suspects, ())
    by_name = {verdict.trial: verdict for verdict in verdicts}
    judged = [
        _Judged(
            suspect,
            belief[suspect.name],
            before[suspect.name],
            _proof(suspect, by_name, known),
            verdicts,
            known,
        )
        for suspect in suspects
    ]
    diagnoses = [_diagnosis(one, status) for one in judged if (status := one.status) is not None]
    met = _met(suspects, by_name, belief)
    diagnoses.sort(key=lambda one: (STATUSES.index(one.status), -one.confidence, one.cause))
    top = next((one for one in diagnoses if one.status in ("confirmed", "likely")), None)
    return Diagnosis(
        incident=known.target,
        symptom=known.symptom,
        replay=_replay(known.control),
        replay_note=known.control.note,
        verdict=top.cause if top is not None else UNKNOWN,
        status=top.status if top is not None else None,
        why=_why(top, diagnoses, met, known, _removed_by(verdicts)),
        diagnoses=tuple(diagnoses[:SHOWN_MAX]),
        trials=_rows(verdicts, absent, known.contrasts),
        record_next=_record_next(top, known),
        notes=(met,) if met else (),
        axis=axis_found(top, suspects, belief, verdicts, known.control) if top is not None or known.symptom else None,
    )


def _rows(
    verdicts: Sequence[Verdict], absent: Sequence[Verdict], contrasts: Mapping[str, Contrast]
) -> tuple[TrialRow, ...]:
    """The table of trials. The one that confirms has the size of its effect; second seeds and placebos follow."""
    sizes = {name: dict(one.numbers) for name, one in contrasts.items()}
    there = {one.trial for one in verdicts}
    beside = [row for one in contrasts.values() for row in one.rows if row.trial not in there]
    return tuple(
        TrialRow(one.trial, one.effect, one.why, {**one.numbers, **sizes.get(one.trial, {})})
        for one in (*verdicts, *beside, *absent)
    )


def _proof(suspect: Suspect, verdicts: Mapping[str, Verdict], known: Circumstances) -> Proof:
    surveyed, contrasts = known.surveyed, known.contrasts
    return proof(suspect, verdicts, known.control, known.waiting, surveyed=surveyed, contrasts=contrasts)


@dataclass(frozen=True)
class _Judged:
    """One suspect with everything that determines its status: see the table at the top of this file."""

    suspect: Suspect
    share: float
    share_before: float
    proof: Proof
    verdicts: Sequence[Verdict]
    known: Circumstances

    @property
    def status(self) -> Status | None:
        found = self._grade
        lasting = not self.known.of_note or self.suspect.signature.broken_invariant is not None
        return found if lasting or found not in ("confirmed", "likely") else "possible"

    @property
    def _grade(self) -> Status | None:
        if self.proof.proven and self.share >= CONFIRMED_MIN:
            return "confirmed"
        if self.share >= LIKELY_MIN and self._tells and self._explains:
            return "likely"
        if self.share >= POSSIBLE_MIN and (self._speaks or self._cured):
            return "possible"
        if self.share < POSSIBLE_MIN and self._against and self._thinkable:
            return "refuted"
        return None

    @property
    def _speaks(self) -> bool:
        return any(sign.weight > 0 for sign in self.suspect.signature.signs)

    @property
    def _tells(self) -> bool:
        """Whether there is evidence: a broken rule, an operation, or a trial, provided that its own cure did not
        fail.
        """
        signature = self.suspect.signature
        # What was only seen to change at the onset may be a coincidence.
        coincides = (bool(self.suspect.cause.evidence) and self._uncured) or self._refuted
        certain = not coincides and any(sign.weight >= CERTAIN for sign in signature.signs)
        return signature.broken_invariant is not None or certain or (self._cured and not self._uncured)

    @property
    def _cured(self) -> bool:
        return any(self.says(one) == "supports" and one.effect == "removed" for one in self.verdicts)

    @property
    def _uncured(self) -> bool:
        """Whether the cure itself failed. This is decisive, because another trial may remove the symptom, too (other
        data instead of a bad batch)."""
        cures = self._cures
        return bool(cures) and all(plain(effect) == "persists" for effect in cures)

    @property
    def _refuted(self) -> bool:
        """Whether several cures failed, and none of those that ran helped."""
        ran = [effect for effect in self._cures if effect != "not-run"]
        return len(ran) >= CURES_MIN and all(plain(effect) == "persists" for effect in ran)

    @property
    def _cures(self) -> list[Effect]:
        """The effects of the trials that would prove the cause."""
        return [one.effect for one in self.verdicts if one.trial in self.suspect.cause.confirming]

    @property
    def _explains(self) -> bool:
        return bool(self.known.symptom) or self.suspect.signature.broken_invariant is not None

    @property
    def _against(self) -> bool:
        against = any(sign.weight < 0 for sign in self.suspect.signature.signs)
        return against or any(self.says(one) == "refutes" for one in self.verdicts)

    def says(self, verdict: Verdict) -> EvidenceVerdict:
        """What a trial's outcome says about the cause. A replay that is not exact refutes nothing."""
        if verdict.effect == "not-run":
            return "not-run"
        expected, outcome = self.suspect.cause.expected(verdict.trial), plain(verdict.effect)
        if outcome is None or expected == "either":
            return "inconclusive"
        if outcome == expected:
            return "supports"
        return "inconclusive" if verdict.trial == UNCHANGED and not self.known.control.exact else "refutes"

    @property
    def _thinkable(self) -> bool:
        """Whether the cause was plausible before the trials."""
        return self.share_before >= POSSIBLE_MIN or (self._speaks and not self.suspect.signature.ruled_out)


def _diagnosis(judged: _Judged, status: Status) -> RankedCause:
    suspect, proven, verdicts = judged.suspect, judged.proof, judged.verdicts
    seen = [
        Evidence(SIGNATURE, "supports" if sign.weight > 0 else "refutes", sign.what, sign.source, dict(sign.numbers))
        for sign in sorted(suspect.signature.signs, key=lambda sign: -abs(sign.weight))
    ]
    tried = [
        Evidence(one.trial, judged.says(one), one.why, "trial", dict(one.numbers))
        for one in verdicts
        if suspect.cause.expected(one.trial) != "either" or one.effect == "not-run"
    ]
    return RankedCause(
        cause=suspect.name,
        summary=summary_of(suspect),
        status=status,
        confidence=round(judged.share, 4),
        evidence=(*seen, *tried),
        layer=suspect.signature.layer,
        batch_rows=suspect.signature.batch_rows,
        interventions=remedies(
            suspect.cause,
            fitting(interventions_of(suspect.name, suspect.cause), suspect.signature, verdicts),
            verdicts,
            target=judged.known.target,
            replayed=judged.known.control.ran,
            refused=judged.known.refused,
            contrasts=judged.known.contrasts,
            of_script=OfScript(judged.known.optimizer, judged.known.onset, judged.known.hints),
        ),
        why=_reason(suspect, proven),
    )


def _reason(suspect: Suspect, proven: Proof) -> str:
    """What was seen beyond doubt, if anything, and what proves the cause or is missing for that."""
    by = proven.by if proven.proven else f"not confirmed: {proven.lacks}" if proven.lacks else ""
    seen = max(suspect.signature.signs, key=lambda sign: sign.weight, default=None)
    if seen is None or seen.weight < CERTAIN or seen.what in by:
        return by
    return f"{seen.what}; {by}" if by else seen.what


def summary_of(suspect: Suspect) -> str:
    """The first sentence of the cause's docstring."""
    return " ".join((type(suspect.cause).__doc__ or "").strip().split("\n\n")[0].split())


def _met(suspects: Sequence[Suspect], verdicts: Mapping[str, Verdict], belief: Mapping[str, float]) -> str:
    """A sentence if a batch and a state acted together: dropping the one and repairing the other each removes the
    symptom.

    No single cause predicts that outcome, so it is read from the trials and not from the probabilities.
    """
    cured = [
        (suspect, trial)
        for suspect in suspects
        for trial in suspect.cause.confirming
        if suspect.signature.weight > 0 and trial in verdicts and verdicts[trial].effect == "removed"
    ]
    for one, trial in cured:
        for other, mends in cured:
            shares = sorted((belief[one.name], belief[other.name]))
            if shares[0] < POSSIBLE_MIN and shares[1] >= LIKELY_MIN:
                continue  # the signs and the other trials single out one of them
            if trial in other.cause.spared and mends in one.cause.spared:
                return f"{one.name} and {other.name} met: {trial} removes it, and so does {mends}; mend the state"
    return ""


def _replay(control: Control) -> str:
    if not control.ran:
        return "not possible"
    return {True: "exact", False: "not exact", None: "not compared"}[control.exact]


def _removed_by(verdicts: Sequence[Verdict]) -> str:
    """A sentence that names the trials that removed the symptom, "" if none did."""
    names = [one.trial for one in verdicts if one.effect == "removed" and one.trial != UNCHANGED]
    return f" What removed the symptom: {', '.join(names)}." if names else ""


def _why(
    top: RankedCause | None, diagnoses: Sequence[RankedCause], met: str, known: Circumstances, removed: str
) -> str:
    if top is not None:
        return f"{top.summary} {_sentence(top.why)}".strip()
    if met:
        return _sentence(met)
    if known.of_note and diagnoses and diagnoses[0].status == "possible":
        first = diagnoses[0]
        named = f"Possible: {first.cause} ({first.confidence:.2f}){f'; {first.why}' if first.why else ''}."
        return f"A note did no lasting harm, so no cause of it is called likely. {named}"
    if not known.symptom:
        return "No detector raised more than a note, and the script breaks no rule that was checked."
    best = [f"{one.cause} ({one.confidence:.2f})" for one in diagnoses if one.status == "possible"][:3]
    made = _made_by(known.located)
    if best:
        return f"{made}The evidence does not single out one cause. Possible: {', '.join(best)}.{removed}"
    return f"{made}No observation or trial supports any known cause.{removed}"


def _made_by(located: Located | None) -> str:
    """A sentence that names the first bad operation and its line, "" for none."""
    if located is None:
        return ""
    name = {"nan": "NaN", "inf": "Inf"}[located.produced]
    place = f" at {PurePath(located.file).name}:{located.line}" if located.file and located.line else ""
    return f"The first {name} came from {located.operation_said}{place}{f': {located.code}' if located.code else ''}. "


NEVER_TAPED = ("which no tape records",)
"""Reasons why nothing was replayed that no other recording would change."""


def _record_next(top: RankedCause | None, known: Circumstances) -> tuple[str, ...]:
    """Recordings that would have improved the answer."""
    if top is not None and top.status == "confirmed":
        return ()
    advice = []
    never = any(words in known.control.note for words in NEVER_TAPED)
    if known.symptom and not (known.control.ran or known.spent or never):
        advice.append(
            "a tape and snapshots, so that steps can be replayed: run with more --rewind-mb, and --keep-rewind for "
            "a run that ends well"
        )
    elif known.control.exact is False:
        advice.append(
            f"a run that repeats: `steadytrain replay {shlex.quote(known.target)}` names the first operation that "
            "differs, and the setting that prevents it; `steadytrain run --seed 0 --deterministic` sets what it can, "
            "the hashes of strings (PYTHONHASHSEED) too; `steadytrain replay --devices` shows whether a GPU or a core "
            "computes wrong"
        )
    elif known.control.ran and known.control.exact is None:
        advice.append("snapshots of steps before it, so that a replay can be compared with the run: more --rewind-mb")
    elif known.control.ran and not known.control.shown and known.symptom and not known.control.early:
        advice.append("a snapshot from before the symptom: more --rewind-mb keeps older ones")
    if known.spent:
        advice.append("more time: --budget; finished trials are not run again")
    if not known.surveyed and not known.spent:
        advice.append(
            "a script that can be launched again from its path: diagnose then checks its wiring, labels and losses"
        )
    if top is None:
        advice.append("layers and tensors: run with --level full")
    return tuple(advice)


def _sentence(text: str) -> str:
    """``text`` as a sentence. A name of code at its beginning (``aten.div.Tensor``) keeps its letters."""
    if not text:
        return ""
    is_code = any(mark in text.split(maxsplit=1)[0].rstrip(".,:;") for mark in "._(")
    return f"{text}." if is_code else f"{text[:1].upper()}{text[1:]}."
