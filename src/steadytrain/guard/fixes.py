"""A fix for a live run, as the user names it: a live intervention, or a trial that one of them makes. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.core.plugins import nearest
from steadytrain.experiments.case import Case
from steadytrain.experiments.fix_verification import plan_fix
from steadytrain.experiments.specs import Change
from steadytrain.experiments.trial_catalog import trial, trials
from steadytrain.guard.intervention import NOT_AT_A_START, Intervention, Setting, kinds

MADE_BY: Mapping[str, tuple[str, str, str]] = {
    "clip-gradients": ("clip", "max_norm", "level"),
    "learning-rate": ("set-learning-rate", "factor", "factor"),
    "fixed-learning-rate": ("set-learning-rate", "value", "value"),
    "beta2": ("lower-beta2", "value", "value"),
    "momentum": ("lower-momentum", "value", "value"),
    "epsilon": ("raise-epsilon", "factor", "factor"),
    "attention-softcap": ("soften-attention", "cap", "cap"),
    "z-loss": ("penalize-logits", "weight", "weight"),
    "clip-updates": ("clip-updates", "", ""),
    "safe-softmax": ("safe-softmax", "", ""),
    "math-attention": ("plain-attention", "", ""),
    "qk-clip": ("qk-clip", "limit", "limit"),
    "float32": ("float32", "", ""),
    "float32-island": ("float32", "modules", "module"),
    "reset-moments": ("reset-moments", "", ""),
}
"""The change of a trial: the live intervention that makes it, its value there, and the setting here."""

SHRINK = "embedding-gradient-shrink"
"""This trial shrinks the gradient of the embedding's weight, by names; the intervention that of all lookups."""

RAMP = "ramp-learning-rate"
"""``reset-moments`` has its own return of the rate, so the ramp of the trial is not made twice."""


@dataclass(frozen=True)
class Fix:
    """A live intervention with its settings."""

    name: str
    settings: Mapping[str, Setting] = field(default_factory=dict)

    def made(self) -> Intervention:
        """A new one."""
        return kinds()[self.name](**self.settings)

    def __str__(self) -> str:
        values = [f"{key.replace('_', '-')}={value}" for key, value in self.settings.items()]
        return ":".join([self.name, *values])


def find_fix(text: str, bundle: Path) -> Fix:
    """The fix that ``text`` names: ``NAME``, ``NAME=VALUE`` for the first setting, or ``NAME:SETTING=VALUE:...``. The
    name is an intervention's, or that of a trial or fix as ``verify --with`` takes it.

    Raises:
        UsageError: there is no such one, no live intervention makes it, or a value is wrong.
    """
    head, *rest = text.split(":")
    name, equals, value = head.partition("=")
    if name not in kinds():
        if rest:
            raise UsageError(f"--with {text}: settings are those of a live intervention; {nearest(name, kinds())}")
        return _of_trial(text, name, _number(text, value) if equals else None, bundle)
    if name in NOT_AT_A_START:
        raise UsageError(f"--with {name}: it needs earlier steps of the same run; --policy steady makes it when needed")
    known = {one.name: one for one in fields(kinds()[name]) if not one.name.startswith("_")}  # type: ignore[arg-type]
    settings: dict[str, Setting] = {}
    for key, given in [
        *([(next(iter(known), ""), value)] if equals else []),
        *(one.split("=", 1) for one in rest if "=" in one),
    ]:
        key = key.replace("-", "_")
        if key not in known:
            raise UsageError(f"--with {text}: {name} has {'no setting ' + repr(key) if key else 'no setting'}")
        default = known[key].default
        number = 0.0 if isinstance(default, str) else _number(text, given)
        settings[key] = given if isinstance(default, str) else int(number) if _is_whole(default, number) else number
    fix = Fix(name, settings)
    try:
        fix.made().check()
    except ValueError as error:
        raise UsageError(f"--with {text}: {error}") from None
    return fix


def live_fix(case: Case, name: str, value: float | None) -> Fix | None:
    """The live intervention that makes the change of the trial ``name`` on ``case``; None if none does."""
    try:
        plan = plan_fix(case, name, value)
    except UsageError:
        return None
    spec = next((one for one in plan if one.repeat == trial(name).fix), plan[0])
    changes = [one for one in spec.changes if one.kind != RAMP or name != "reset-moments"]
    if name == SHRINK:
        return Fix("shrink-embedding-gradient", {"share": float(changes[0].values["factor"])})
    return _made_by(changes[0]) if len(changes) == 1 else None


def _made_by(change: Change) -> Fix | None:
    intervention, there, here = MADE_BY.get(change.kind, ("", "", ""))
    if not intervention or (not here and change.values and any(change.values.values())):
        return None
    values = dict(change.values)
    if not here:
        return Fix(intervention)
    setting = values.pop(there, None)
    if isinstance(setting, list) and len(setting) == 1:
        setting = setting[0]
    if not isinstance(setting, (int, float, str)) or any(values.values()):
        return None
    fix = Fix(intervention, {here: setting})
    try:
        fix.made().check()
    except ValueError:
        return None  # a rate of zero, for example
    return fix


def _of_trial(text: str, name: str, value: float | None, bundle: Path) -> Fix:
    from steadytrain.diagnosis.case_with_run import open_story
    from steadytrain.diagnosis.cause_catalog import causes, interventions_of
    from steadytrain.experiments.facts import read_facts

    of_causes = {one.name: one.trial for cause, made in causes().items() for one in interventions_of(cause, made)}
    known = {one.name for one in trials()}
    if name not in known and name not in of_causes:
        raise UsageError(f"--with {text}: no such fix; {nearest(name, [*kinds(), *known])}")
    wanted = name if name in known else of_causes[name]
    fix = None
    if wanted is not None and wanted in known:
        case = open_story(bundle, facts=read_facts(bundle))
        fix = live_fix(case, trial(wanted).name, value)
    if fix is None:
        raise UsageError(
            f"--with {text}: no live intervention makes this change; `steadytrain policy interventions` lists them. "
            "Make it in the script and leave --with out"
        )
    return fix


def _is_whole(default: object, number: float) -> bool:
    return isinstance(default, int) and number.is_integer()


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"--with {text}: {value!r} is not a number") from None


def handed_on(case: Case, verified: str, intervention: str) -> Fix | None:
    """The live intervention that makes the change that ``verify`` saw work, as the trial ``verified``; None if none."""
    _, equals, value = intervention.partition("=")
    return live_fix(case, verified, float(value) if equals else None)
