"""What a gate demands, and the TOML file that says so. The defaults are those of a gate without a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

from steadytrain.compare.seed_noise import CONFIDENCE
from steadytrain.core.errors import UsageError, refuse_newer
from steadytrain.core.incident import UNTOUCHING, ActionWord
from steadytrain.core.json_values import JsonValue
from steadytrain.core.plugins import name_of, nearest
from steadytrain.core.toml_files import read_toml
from steadytrain.grouping.catalog import log_detectors

POLICY_VERSION = 1
NONFINITE_LOSS = "nonfinite-loss"
DEFAULT_NAME = "default"

SHORTEST = 0.8
"""Trainings of one length may differ by some steps; the end of a short one is no measure of the end of a long one."""

FailOn = Literal["warning", "critical", "never"]
TOUCHING = tuple(word for word in get_args(ActionWord) if word not in UNTOUCHING)
"""Entries of the ledger that changed the training, which a policy may allow."""


@dataclass(frozen=True)
class Bounds(JsonValue):
    """Bounds of a signal, each None if there is none. ``end_*`` bound its mean over the last tenth of the steps (at
    least ten), the others each finite value.
    """

    lowest: float | None = None
    highest: float | None = None
    end_lowest: float | None = None
    end_highest: float | None = None

    @property
    def given(self) -> bool:
        return self != Bounds()


@dataclass(frozen=True)
class GatePolicy(JsonValue):
    """What a run must fulfil. ``name`` is the file, or ``default``.

    ``nonfinite_losses`` is the number of losses that may be NaN or Inf. ``unfinished`` lets a run pass that did not end
    by itself. ``confidence`` is that of the interval in which one more run like the references lies; ``both_sides``
    also fails a run below it. ``shortest`` is the share of the steps of the longest one that the run and each reference
    must have reached to be compared.
    """

    name: str = DEFAULT_NAME
    fail_on: FailOn = "critical"
    allowed_symptoms: tuple[str, ...] = ()
    nonfinite_losses: int = 0
    loss: Bounds = field(default_factory=Bounds)
    gradient_norm: Bounds = field(default_factory=Bounds)
    allowed_actions: tuple[str, ...] = ()
    unfinished: bool = False
    checklist: bool = False
    preflight: bool = False
    data: bool = False
    confidence: float = CONFIDENCE
    both_sides: bool = False
    shortest: float = SHORTEST


_SECTIONS: Mapping[str, tuple[str, ...]] = {
    "symptoms": ("fail-on", "allow"),
    "loss": ("nonfinite", "lowest", "highest", "end-lowest", "end-highest"),
    "gradient-norm": ("lowest", "highest", "end-lowest", "end-highest"),
    "actions": ("allow",),
    "run": ("unfinished",),
    "require": ("checklist", "preflight", "data"),
    "reference": ("confidence", "both-sides", "shortest"),
}


def read_policy(path: Path) -> GatePolicy:
    """The policy in the TOML file ``path``.

    Raises:
        UsageError: it cannot be read, is no policy, contradicts itself, or is of a newer version; the text names the
            entry.
    """
    return _Reading(path).policy(read_toml(path, what="policy of a gate"))


class _Reading:
    """Turns the document of a file into a policy; every error begins with the file's name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def policy(self, data: Mapping[str, Any]) -> GatePolicy:
        version = data.get("version")
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            given = "no version" if version is None else f"version = {version!r}"
            self._fail(f"{given}; a policy of a gate begins with version = {POLICY_VERSION}")
        refuse_newer(self._path, version, POLICY_VERSION, what="gate policy")
        self._known("entry", data, ("version", *_SECTIONS))
        parts = {name: self._section(data, name) for name in _SECTIONS}
        symptoms, loss, required, noise = (parts[name] for name in ("symptoms", "loss", "require", "reference"))
        policy = GatePolicy(
            name=str(self._path),
            fail_on=self._choice("symptoms", symptoms, "fail-on", get_args(FailOn), GatePolicy.fail_on),
            allowed_symptoms=self._names("symptoms", symptoms, "symptom", _symptom_names()),
            nonfinite_losses=self._count("loss", loss, "nonfinite"),
            loss=self._bounds("loss", loss),
            gradient_norm=self._bounds("gradient-norm", parts["gradient-norm"]),
            allowed_actions=self._names("actions", parts["actions"], "action", TOUCHING),
            unfinished=self._switch("run", parts["run"], "unfinished"),
            checklist=self._switch("require", required, "checklist"),
            preflight=self._switch("require", required, "preflight"),
            data=self._switch("require", required, "data"),
            confidence=self._confidence(noise),
            both_sides=self._switch("reference", noise, "both-sides"),
            shortest=self._share("reference", noise, "shortest", SHORTEST),
        )
        self._consistent(policy)
        return policy

    def _section(self, data: Mapping[str, Any], name: str) -> dict[str, Any]:
        section = data.get(name, {})
        if not isinstance(section, dict):
            self._fail(f"{name} = {section!r}: must be a table, [{name}]")
        self._known(f"entry of [{name}]", section, _SECTIONS[name])
        return dict(section)

    def _choice(self, where: str, given: Mapping[str, Any], key: str, known: tuple[str, ...], default: Any) -> Any:
        value = given.get(key, default)
        if value not in known:
            self._fail(f"[{where}] {key} = {value!r}: must be one of {', '.join(known)}")
        return value

    def _names(self, where: str, given: Mapping[str, Any], word: str, known: tuple[str, ...]) -> tuple[str, ...]:
        names = given.get("allow", [])
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            self._fail(f"[{where}] allow = {names!r}: must be a list of names")
        for name in names:
            if name not in known:
                self._fail(f"[{where}] allow: {name!r}: no such {word}; {nearest(name, known)}")
        return tuple(names)

    def _count(self, where: str, given: Mapping[str, Any], key: str) -> int:
        value = given.get(key, 0)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self._fail(f"[{where}] {key} = {value!r}: must be a whole number, 0 or more")
        return int(value)

    def _switch(self, where: str, given: Mapping[str, Any], key: str) -> bool:
        value = given.get(key, False)
        if not isinstance(value, bool):
            self._fail(f"[{where}] {key} = {value!r}: must be true or false")
        return bool(value)

    def _bounds(self, where: str, given: Mapping[str, Any]) -> Bounds:
        found = Bounds()
        for key in _SECTIONS["gradient-norm"]:
            if key in given:
                if not _is_number(given[key]):
                    self._fail(f"[{where}] {key} = {given[key]!r}: must be a finite number")
                found = replace(found, **{key.replace("-", "_"): float(given[key])})
        return found

    def _confidence(self, given: Mapping[str, Any]) -> float:
        value = given.get("confidence", CONFIDENCE)
        if not _is_number(value) or not 0.5 <= value < 1.0:
            self._fail(f"[reference] confidence = {value!r}: must be at least 0.5 and below 1")
        return float(value)

    def _share(self, where: str, given: Mapping[str, Any], key: str, default: float) -> float:
        value = given.get(key, default)
        if not _is_number(value) or not 0.0 <= value <= 1.0:
            self._fail(f"[{where}] {key} = {value!r}: must be between 0 and 1")
        return float(value)

    def _consistent(self, policy: GatePolicy) -> None:
        """What the parts of the file say together."""
        for where, bounds in (("loss", policy.loss), ("gradient-norm", policy.gradient_norm)):
            for low in ("lowest", "end_lowest"):
                for high in ("highest", "end_highest"):
                    least, most = getattr(bounds, low), getattr(bounds, high)
                    if least is not None and most is not None and least > most:
                        names = f"{low.replace('_', '-')} = {least:g} is above {high.replace('_', '-')} = {most:g}"
                        self._fail(f"[{where}] {names}: no run can pass")
        for high in ("highest", "end_highest"):
            most = getattr(policy.gradient_norm, high)
            if most is not None and most < 0:
                self._fail(
                    f"[gradient-norm] {high.replace('_', '-')} = {most:g}: no norm is below 0, so no run can pass"
                )
        if policy.fail_on == "never" and policy.allowed_symptoms:
            self._fail("[symptoms] allow contradicts fail-on = 'never', which allows every symptom")
        allowed = policy.fail_on == "never" or NONFINITE_LOSS in policy.allowed_symptoms
        if policy.nonfinite_losses and not allowed:
            given = f"[loss] nonfinite = {policy.nonfinite_losses}"
            self._fail(f"{given} contradicts [symptoms]: add {NONFINITE_LOSS!r} to its allow")

    def _known(self, word: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for name in given:
            if name not in known:
                self._fail(f"{name!r}: no such {word}; {nearest(name, known)}")

    def _fail(self, why: str) -> None:
        raise UsageError(f"{self._path}: {why}")


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _symptom_names() -> tuple[str, ...]:
    return tuple(name_of(one) for one in log_detectors())
