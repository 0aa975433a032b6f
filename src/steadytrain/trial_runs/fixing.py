"""``steadytrain fix``: patches of the script for the diagnosed causes, each tried by a run of the patched copy.

The script itself is only read here; ``patched_files.write`` writes it. What is judged is the symptom of the incident:
whether it comes again within as many steps from the script's start. A patch counts only if the unchanged script, run
again in the same way, shows the symptom. What a script does wrong without a sign in its loss is judged by the rule that
it breaks: its detector looks at both runs. A fault that no detector saw has no symptom, so its patch stays undecided.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from steadytrain.core.json_values import number_to_json
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis, PatchTried, RankedCause
from steadytrain.diagnosis.case_with_run import open_story
from steadytrain.diagnosis.patched_answer import with_patch
from steadytrain.diagnosis.patches.wound import Patch
from steadytrain.experiments.case import Case
from steadytrain.experiments.facts import read_facts
from steadytrain.experiments.health import START_STEPS, above_start, first_of, last_of, range_before
from steadytrain.experiments.specs import Effect
from steadytrain.experiments.watched_rules import broken_rule
from steadytrain.storage.redaction import redact_text
from steadytrain.trial_runs.patched_files import OwnFile, own_files, patches_of
from steadytrain.trial_runs.patched_run import Followed, Wanted, follow

SCHEMA = "steadytrain.fix/1"
AFTER_STEPS, AFTER_STEPS_MAX = 12, 120
"""Steps after the onset: as many as came before it, within these bounds. A smaller learning rate that only delays the
symptom passes the first dozen."""

RUN_SHARE = 1 / 3
"""Share of the time left for one run, if it is to go on beyond the first dozen: the control takes as long."""

AFTER_RULE = 8
"""Steps after the one by which a broken rule was seen: looks come every 8 to 16 steps."""

TRIED_MAX = 4
"""Patches that are run at most, over all causes."""

ENDED_NEAR = 2
"""A script that sees the fault itself ends at most so many updates before the onset."""

PROGRESS_FACTOR = 3.0
"""A run that did not learn does so if it falls this many times as far: as trials judge it."""

SAME_STEPS_MIN = 8
"""Losses, all different, that must equal the recorded ones for the recorded run to be the control."""

ROOM = 0.1
"""Share of the losses' own range by which a healthy loss may lie above those before the onset."""


Clock = Callable[[], float]


@dataclass(frozen=True)
class Fixed:
    """The answer of ``fix``. ``patch`` is the one that worked, or the last that was tried; ``text`` the patched file.
    ``why_none`` says for each cause without a patch why there is none; ``nearest`` is the command of its first fix.
    ``control`` says whether the unchanged script showed the symptom again (:class:`Control`), None if no patch came so
    far."""

    incident: str
    verdict: str
    status: str | None
    script: str | None
    patch: PatchTried | None
    tried: tuple[PatchTried, ...]
    why_none: tuple[str, ...]
    nearest: str | None
    text: str | None = None
    control: str | None = None

    @property
    def effect(self) -> str:
        return self.patch.effect if self.patch is not None else "not-run"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "incident": self.incident,
            "verdict": self.verdict,
            "status": self.status,
            "script": self.script,
            "effect": self.effect,
            "patch": self.patch.to_json() if self.patch is not None else None,
            "tried": [one.to_json() for one in self.tried],
            "why_none": list(self.why_none),
            "nearest": self.nearest,
            "control": self.control,
        }


def fix(
    source: Path, answer: Diagnosis, *, moved: str, budget_s: float, tell: Callable[[str], None], clock: Clock
) -> Fixed:
    """Makes patches for the causes of ``answer`` and runs them until one removes the symptom. Stores the last.

    Raises:
        UsageError: the command cannot be launched again.
    """
    runs = _Runs(source, opened(source), moved, tell, clock, clock() + budget_s)
    files, refusal = own_files(runs.case, moved)
    causes = [one for one in answer.diagnoses if one.status != "refuted"]
    if broken_rule(runs.case) and answer.status is not None:
        causes = causes[:1]  # the script breaks a rule, and no other change mends that
    tried: list[tuple[PatchTried, Patch]] = []
    none = [refusal] if refusal else []
    control: Control | None = None
    for cause in causes if files else []:
        made, why = patches_of(cause.cause, files, runs.case, _usual_norm(runs.case))
        none += [f"{cause.cause}: {why}"] if why else []
        for own, patch in made:
            if len(tried) >= TRIED_MAX or runs.left_s <= 0 or control is not None:
                break
            one, followed, took_s = _tried(runs, own, patch)
            if one.effect == "removed":
                control = same_run(runs.case, followed) or controlled(runs.case, runs.unchanged(files[0], took_s))
                one = with_control(one, control)
            tried.append((one, patch))
    best = next((pair for pair in tried if pair[0].effect == "removed"), tried[-1] if tried else None)
    if best is not None:
        answer = with_patch(answer, best[0])
        answer_files.keep(source, answer)
    return Fixed(
        str(source),
        answer.verdict,
        answer.status,
        str(files[0].path) if files and files[0].is_script else None,
        best[0] if best is not None else None,
        tuple(one for one, _ in tried),
        tuple(none) if causes else ("no cause was found, so there is nothing to patch",),
        _nearest(causes),
        best[1].text if best is not None else None,
        control.state if control is not None else None,
    )


def steps_to_follow(case: Case, left_s: float) -> int:
    """How many steps from the start a patched script is followed for."""
    if broken_rule(case):
        return case.step + AFTER_RULE
    wanted = case.onset + min(AFTER_STEPS_MAX, max(AFTER_STEPS, case.onset))
    affordable = int(RUN_SHARE * max(0.0, left_s) / case.step_s) if case.step_s > 0 else wanted
    return max(case.onset + AFTER_STEPS, min(wanted, affordable))


@dataclass(frozen=True)
class _Runs:
    """What every run of the script again has in common."""

    source: Path
    case: Case
    moved: str
    tell: Callable[[str], None]
    clock: Clock
    until: float

    @property
    def left_s(self) -> float:
        return self.until - self.clock()

    def follow(self, own: OwnFile, text: str) -> Followed:
        rule = broken_rule(self.case)
        return follow(
            self.source,
            text,
            Wanted(steps_to_follow(self.case, self.left_s), self.case.stream, [rule] if rule else []),
            file="" if own.is_script else str(own.path),
            wait_s=max(1.0, self.left_s),
            moved=self.moved,
            tell=self.tell,
        )

    def unchanged(self, own: OwnFile, took_s: float) -> Followed | None:
        """The unchanged script as far as a patched one, which took ``took_s`` seconds; None if there is no time."""
        if self.left_s < took_s:
            return None
        self.tell("running the unchanged script in the same way")
        return self.follow(own, own.text)


def opened(source: Path) -> Case:
    return open_story(source, facts=read_facts(source))


def _tried(runs: _Runs, own: OwnFile, patch: Patch) -> tuple[PatchTried, Followed, float]:
    """What came of a patch, its run, and the seconds that it took."""
    runs.tell(f"trying a patch: {patch.what}")
    began = runs.clock()
    followed = runs.follow(own, patch.text)
    effect, why = judged(runs.case, followed)
    before, after = _last_common(runs.case, followed)
    diff, steps = redact_text(patch.diff), len(followed.finite)
    tried = PatchTried(patch.cause, patch.what, str(own.path), diff, effect, why, _json(before), _json(after), steps)
    return tried, followed, runs.clock() - began


@dataclass(frozen=True)
class Control:
    """The unchanged script, run again in the way of the patched one. ``state`` says whether the symptom came again:
    ``shown``, ``not-shown``, ``unclear``, or ``not-run``. ``recorded``: it need not run again, because the patched run
    is the recorded one, number by number, up to the onset."""

    state: Literal["shown", "recorded", "not-shown", "unclear", "not-run"]
    why: str


def same_run(case: Case, followed: Followed) -> Control | None:
    """The recorded run as the control, if all losses before the onset are equal to the last bit; else None. Pure."""
    there = {step: loss for step, loss in _recorded(case).items() if step < case.onset and math.isfinite(loss)}
    here = {step: loss for step, loss in enumerate(followed.losses, 1) if step in there}
    if len(there) < SAME_STEPS_MIN or here != there or len(set(there.values())) < SAME_STEPS_MIN:
        return None
    return Control(
        "recorded", f"the losses of {len(there)} steps before the onset are the recorded ones to the last bit"
    )


def controlled(case: Case, followed: Followed | None) -> Control:
    """What the run of the unchanged script says; None: it was not run. Pure."""
    if followed is None:
        return Control("not-run", "no time was left")
    count = len(followed.finite)
    short = count < case.onset + 1 and case.onset - count <= ENDED_NEAR
    if not all(followed.finite):
        return Control("shown", f"its step {followed.finite.index(False) + 1} is not finite")
    if followed.ended and short and count:
        return Control("shown", f"it ended after {count} steps: {followed.ended}")
    effect, why = judged(case, followed)
    if effect in ("persists", "delayed"):
        return Control("shown", why)
    return Control("not-shown" if effect == "removed" else "unclear", why)


def with_control(one: PatchTried, control: Control) -> PatchTried:
    """A patch is seen to remove the symptom only if the unchanged script shows it under the same conditions."""
    if control.state == "recorded":
        return replace(one, why=f"{one.why}; {control.why}")
    if control.state == "shown":
        return replace(one, why=f"{one.why}; the unchanged script, run again in the same way, shows it: {control.why}")
    if control.state == "not-run":
        return replace(one, why=f"{one.why}; the unchanged script was not run again: {control.why}")
    said = "does not show it either" if control.state == "not-shown" else "leaves it open"
    why = f"{one.why}; but the unchanged script, run again in the same way, {said}: {control.why}"
    return replace(one, effect="inconclusive", why=why)


def judged(case: Case, followed: Followed) -> tuple[Effect, str]:
    """What became of the symptom in the patched script, in one sentence. Pure."""
    count = len(followed.finite)
    if followed.failed:
        return "not-run", f"the patched script failed after {count} steps: {followed.ended}"
    if case.symptom is None:
        return "inconclusive", f"followed for {count} steps; the run had no symptom, so nothing shows whether it helped"
    bad = next((step for step, finite in enumerate(followed.finite, 1) if not finite), None)
    short = f" ({followed.ended})" if followed.ended else ""
    if bad is not None:
        late = case.aim == "finite" and bad > case.onset + 2
        return ("delayed" if late else "persists"), f"step {bad} of the patched script is not finite"
    if rule := broken_rule(case):
        if rule in followed.symptoms:
            return "persists", f"{rule} is seen again within {count} steps"
        if count < case.step:
            return "inconclusive", f"followed for {count} steps only{short}; {rule} was seen by step {case.step}"
        before, after = _last_common(case, followed)
        higher = before is not None and after is not None and after > before
        said = f"{rule} is not seen in {count} steps; in the recorded run it was by step {case.step}"
        return "removed", f"{said}; the loss may be higher for a while" if higher else said
    if count < case.onset + 1:
        return "inconclusive", f"followed for {count} steps only{short}, before the onset at step {case.onset}"
    if case.aim == "finite":
        finite = f"all {count} steps of the patched script are finite{short}; the onset was step {case.onset}"
        ill = _ill_at_end(case, followed)
        return ("inconclusive", f"{finite}; but {ill}") if ill else ("removed", finite)
    return _by_loss(case, followed, short)


def _ill_at_end(case: Case, followed: Followed) -> str:
    """Where the loss ends if that is neither near its start nor within its range before the onset: finite is not
    healthy. "" where the losses of optimizers that take turns may rise, or too few are known."""
    losses, facts = [loss for loss in followed.losses if loss is not None], case.window.facts
    rises = facts.get("loss_may_rise", 0.0) > 0.0 or facts.get("optimizers_in_turn", 1.0) > 1
    if len(losses) < 2 * START_STEPS or rises:
        return ""
    usual = range_before(case)
    return above_start(first_of(losses), last_of(losses), usual.loss if usual is not None else -math.inf)


def _by_loss(case: Case, followed: Followed, short: str) -> tuple[Effect, str]:
    there = _recorded(case)
    here = {step: loss for step, loss in enumerate(followed.losses, 1) if loss is not None}
    common = sorted(set(there) & set(here))
    if len(common) < 2:
        return "inconclusive", "too few losses to compare"
    if case.aim == "progress":
        fell, fell_there = here[common[0]] - here[common[-1]], there[common[0]] - there[common[-1]]
        effect: Effect = "removed" if fell > PROGRESS_FACTOR * max(fell_there, 0.0) and fell > 0 else "persists"
        return (
            effect,
            f"the loss falls by {fell:.3g} in {len(common)} steps, without the patch by {fell_there:.3g}{short}",
        )
    early = [loss for step, loss in here.items() if step < case.onset] or [here[common[0]]]
    peak = max(loss for step, loss in here.items() if step >= case.onset)
    there_peak = max((loss for step, loss in there.items() if step >= case.onset), default=math.inf)
    room = ROOM * (max(early) - min(early))
    said = f"the highest loss from step {case.onset} on is {peak:.4g}, without the patch {there_peak:.4g}{short}"
    if peak <= max(early) + room:
        return "removed", said
    return ("persists" if peak - max(early) >= (there_peak - max(early)) / 2 else "inconclusive"), said


def _recorded(case: Case) -> dict[int, float]:
    series = case.window.series("loss")
    return dict(zip(map(int, series.steps), map(float, series.values), strict=True))


def _last_common(case: Case, followed: Followed) -> tuple[float | None, float | None]:
    there = _recorded(case)
    both = [step for step, loss in enumerate(followed.losses, 1) if loss is not None and step in there]
    return (there[both[-1]], followed.losses[both[-1] - 1]) if both else (None, None)


def _usual_norm(case: Case) -> float | None:
    series = case.window.series("gradient_norm")
    norms = sorted(float(value) for value in series.values if math.isfinite(float(value)))
    return norms[len(norms) // 2] if norms else None


def _nearest(causes: list[RankedCause]) -> str | None:
    return next((one.command for cause in causes for one in cause.interventions if one.command), None)


def _json(value: float | None) -> float | str | None:
    return None if value is None else number_to_json(value)
