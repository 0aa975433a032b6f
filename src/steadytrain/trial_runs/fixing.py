"""``steadytrain fix``: patches of the script for the diagnosed causes, each tried by a run of the patched copy.

The script itself is read here and written only by ``write``. What is judged is the symptom of the incident: whether it
comes again within as many steps from the script's start. A silent fault has none, so its patch stays undecided.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.json_values import number_to_json
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis, PatchTried, RankedCause
from steadytrain.diagnosis.patch import Patch, patches_for, wound_of
from steadytrain.experiments.case import Case
from steadytrain.experiments.facts import read_facts
from steadytrain.experiments.specs import Effect
from steadytrain.replay.moved_files import Moved, moved_environment
from steadytrain.storage.redaction import redact_text
from steadytrain.trial_runs.patched_run import Followed, follow

SCHEMA = "steadytrain.fix/1"
AFTER_STEPS = 12
"""Steps after the onset: as long as the shortest trial follows a fix, and two more."""

TRIED_MAX = 4
"""Patches that are run at most, over all causes."""

PROGRESS_FACTOR = 3.0
"""A run that did not learn does so if it falls this many times as far: as trials judge it."""

ROOM = 0.1
"""Share of the losses' own range by which a healthy loss may lie above those before the onset."""


Clock = Callable[[], float]


@dataclass(frozen=True)
class Fixed:
    """The answer of ``fix``. ``patch`` is the one that worked, or the last that was tried; ``text`` the patched script.
    ``why_none`` says for each cause without a patch why there is none; ``nearest`` is the command of its first fix."""

    incident: str
    verdict: str
    status: str | None
    script: str | None
    patch: PatchTried | None
    tried: tuple[PatchTried, ...]
    why_none: tuple[str, ...]
    nearest: str | None
    text: str | None = None

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
        }


def fix(
    source: Path, answer: Diagnosis, *, moved: str, budget_s: float, tell: Callable[[str], None], clock: Clock
) -> Fixed:
    """Makes patches for the causes of ``answer`` and runs them until one removes the symptom. Stores the last.

    Raises:
        UsageError: the command cannot be launched again.
    """
    until = clock() + budget_s
    case = opened(source)
    script, text, refusal = script_of(case, moved)
    causes = [one for one in answer.diagnoses if one.status != "refuted"]
    tried: list[tuple[PatchTried, Patch]] = []
    none = [refusal] if refusal else []
    for cause in causes if script is not None else []:
        wound = wound_of(str(script), case.finding.located if case.finding else None, _usual_norm(case))
        made, why = patches_for(cause.cause, text, wound, name=script.name if script else "")
        none += [f"{cause.cause}: {why}"] if why else []
        for patch in made:
            if len(tried) >= TRIED_MAX or clock() >= until or any(one.effect == "removed" for one, _ in tried):
                break
            tell(f"trying a patch: {patch.what}")
            tried.append((_tried(source, case, patch, script, moved, until - clock(), tell), patch))
    best = next((pair for pair in tried if pair[0].effect == "removed"), tried[-1] if tried else None)
    if best is not None:
        answer_files.keep(source, replace(answer, patch=best[0]))
    return Fixed(
        str(source),
        answer.verdict,
        answer.status,
        str(script) if script is not None else None,
        best[0] if best is not None else None,
        tuple(one for one, _ in tried),
        tuple(none) if causes else ("no cause was found, so there is nothing to patch",),
        _nearest(causes),
        best[1].text if best is not None else None,
    )


def opened(source: Path) -> Case:
    return answer_files.open_story(source, facts=read_facts(source))


def script_of(case: Case, moved: str) -> tuple[Path | None, str, str]:
    """The script of the run, its text, and why it cannot be patched ("" if it can)."""
    path = moved_environment(case.environment, Moved.parse(moved)).get("script")
    if not path:
        return None, "", "the run was started as a module or from a notebook, so there is no script to patch"
    try:
        raw = Path(path).read_bytes()
        text = raw.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        return None, "", f"{path}: the script cannot be read ({error})"
    recorded = (case.environment.get("sources") or {}).get(case.environment.get("script"))
    if recorded is not None and hashlib.sha256(raw).hexdigest() != recorded:
        return None, "", f"{path}: the script changed since the run, so its lines are not those that failed"
    return Path(path), text, ""


def write(text: str, case: Case, moved: str) -> Path | None:
    """Writes the patched text over the script, atomically. Returns the copy of the old one, None if git holds it.

    Raises:
        UsageError: the script changed since the run, or cannot be written.
    """
    path, _, refusal = script_of(case, moved)
    if path is None:
        raise UsageError(f"--write: {refusal}")
    copy = None if _in_git(path) else path.with_name(f"{path.name}.orig")
    if copy is not None and copy.exists():
        raise UsageError(f"--write: {copy} is there from an earlier patch; move it away first")
    try:
        if copy is not None:
            shutil.copy2(path, copy)
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        shutil.copymode(path, name)
        os.replace(name, path)
    except OSError as error:
        raise UsageError(f"--write: {path} cannot be written ({error.strerror or error})") from None
    return copy


def _in_git(path: Path) -> bool:
    """Whether git holds the file as it is now."""
    for command in (["ls-files", "--error-unmatch"], ["diff", "--quiet", "HEAD", "--"]):
        try:
            done = subprocess.run(["git", *command, path.name], cwd=path.parent, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return False
        if done.returncode != 0:
            return False
    return True


def _tried(
    source: Path, case: Case, patch: Patch, script: Path | None, moved: str, wait_s: float, tell: Callable[[str], None]
) -> PatchTried:
    followed = follow(
        source, patch.text, steps=case.onset + AFTER_STEPS, wait_s=max(1.0, wait_s), moved=moved, tell=tell
    )
    effect, why = judged(case, followed)
    before, after = _last_common(case, followed)
    name = str(script) if script is not None else ""
    return PatchTried(
        patch.cause,
        patch.what,
        name,
        redact_text(patch.diff),
        effect,
        why,
        _json(before),
        _json(after),
        len(followed.finite),
    )


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
    if count < case.onset + 1:
        return "inconclusive", f"followed for {count} steps only{short}, before the onset at step {case.onset}"
    if case.aim == "finite":
        return "removed", f"all {count} steps of the patched script are finite{short}; the onset was step {case.onset}"
    return _by_loss(case, followed, short)


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
