"""Reads a policy from a TOML file, checks it, and writes a policy as TOML. Torch-free.

A file names what it starts from (``policy``) and changes it: the response to each symptom, the budget, the ladders, and
the settings of interventions. Whatever it holds that has no meaning is an error that names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import MAX_SKIPS_DEFAULT
from steadytrain.core.plugins import name_of, nearest
from steadytrain.core.toml_files import read_toml
from steadytrain.grouping.catalog import detectors
from steadytrain.guard.intervention import NOT_AT_A_START, kinds
from steadytrain.guard.policy import (
    AT_GATE,
    BASES,
    NONFINITE,
    OUTLIERS,
    RESPONSES,
    SKIPPED,
    SPIKE,
    Budget,
    Policy,
    Rung,
    built_in,
)
from steadytrain.storage.documents import as_json

SECTIONS = ("policy", "always", "symptoms", "budget", "ladders", "interventions")
ENDING = ".toml"
OWN_RESPONSE = "default"
TEXT_MAX = 200
"""Characters of a setting that is a text: the dotted name of a module."""


def find_policy(name: str, *, max_skips: int = MAX_SKIPS_DEFAULT) -> Policy:
    """The policy of that name, or in the file ``name``.

    Raises:
        UsageError: there is no such policy or file, or the file is no policy.
    """
    if name in BASES:
        return built_in(name, max_skips=max_skips)
    path = Path(name)
    if path.suffix == ENDING or path.exists() or "/" in name:
        return read_policy(path)
    raise UsageError(f"{name!r}: no such policy; one of {', '.join(BASES)}, or a TOML file")


def read_policy(path: Path) -> Policy:
    """The policy in the file ``path``.

    Raises:
        UsageError: it cannot be read, or is no policy; the text names the entry.
    """
    data = read_toml(path, what="policy")
    if not data:
        raise UsageError(f'{path}: empty; a policy begins with, for example, policy = "steady"')
    return _Reading(str(path)).policy(data)


class _Reading:
    """Turns the document of a file into a policy; every error begins with the file's name."""

    def __init__(self, file: str) -> None:
        self._file = file

    def policy(self, data: Mapping[str, Any]) -> Policy:
        self._known("entry", data, SECTIONS)
        base = data.get("policy", "stop")
        if base not in BASES:
            self._fail(f"policy {base!r}: must be one of {', '.join(BASES)}")
        policy = replace(built_in(base), name=self._file)
        symptoms = self._symptoms(self._table(data, "symptoms"))
        default = symptoms.pop(OWN_RESPONSE, policy.default)
        budget = self._budget(self._table(data, "budget"), policy.budget)
        ladders = {name: self._ladder(name, rungs) for name, rungs in self._table(data, "ladders").items()}
        settings = {name: self._settings(name, one) for name, one in self._table(data, "interventions").items()}
        always = self._always(data.get("always", []))
        named = [name for rungs in ladders.values() for rung in rungs for name in rung]
        policy = replace(
            policy,
            always=always,
            asked=tuple(dict.fromkeys((*always, *named))),
            symptoms={**policy.symptoms, **symptoms},
            default=default,
            budget=budget,
            ladders={**policy.ladders, **ladders},
            settings=settings,
        )
        self._consistent(policy, symptoms, ladders)
        return policy

    def _symptoms(self, given: Mapping[str, Any]) -> dict[str, Any]:
        self._known("symptom", given, (*symptom_names(), OWN_RESPONSE))
        for name, response in given.items():
            if response not in RESPONSES:
                self._fail(f"[symptoms] {name} = {response!r}: must be one of {', '.join(RESPONSES)}")
            if response == "skip" and name not in (*AT_GATE, *OUTLIERS):
                allowed = ", ".join((*AT_GATE, *OUTLIERS))
                self._fail(f"[symptoms] {name} = 'skip': only a step with {allowed} is seen before its update")
        return dict(given)

    def _budget(self, given: Mapping[str, Any], budget: Budget) -> Budget:
        names = {one.name.replace("_", "-"): one.name for one in fields(Budget)}
        self._known("entry of [budget]", given, tuple(names))
        for name, value in given.items():
            whole = isinstance(value, int) and not isinstance(value, bool)
            if name == "lowest-learning-rate":
                if not self._is_number(value) or not 0.0 < value <= 1.0:
                    self._fail(f"[budget] {name} = {value!r}: must be a share above 0, at most 1")
            elif not whole or value < (1 if name in ("cool-down", "skips-in-a-row") else 0):
                self._fail(f"[budget] {name} = {value!r}: must be a whole number, and not negative or too small")
        return replace(budget, **{names[name]: value for name, value in given.items()})

    def _ladder(self, name: str, rungs: Any) -> tuple[Rung, ...]:
        if name not in (*symptom_names(), NONFINITE, SPIKE):
            near = nearest(name, (*symptom_names(), NONFINITE, SPIKE))
            self._fail(f"[ladders] {name!r}: no such symptom; {near}")
        if not isinstance(rungs, list) or not rungs:
            self._fail(f"[ladders] {name} = {rungs!r}: must be a list of interventions, or of lists of them, not empty")
        made = []
        for rung in rungs:
            names = [rung] if isinstance(rung, str) else rung
            if not isinstance(names, list) or not names or not all(isinstance(one, str) for one in names):
                self._fail(f"[ladders] {name}: {rung!r} must be the name of an intervention or a list of names")
            for one in names:
                self._intervention(f"[ladders] {name}", one)
            if "skip" in names and (len(names) > 1 or name not in SKIPPED):
                self._fail(f"[ladders] {name}: 'skip' stands alone, and only for {', '.join(SKIPPED)}")
            made.append(tuple(names))
        return tuple(made)

    def _always(self, names: Any) -> Rung:
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            self._fail(f"always = {names!r}: must be a list of names of interventions")
        for one in names:
            self._intervention("always", one)
            if one in NOT_AT_A_START:
                self._fail(f"always: {one!r} needs earlier steps of the run; name it in a ladder")
        return tuple(dict.fromkeys(names))

    def _settings(self, name: str, given: Any) -> dict[str, float | str]:
        self._intervention("[interventions]", name)
        if not isinstance(given, Mapping):
            self._fail(f"[interventions] {name} = {given!r}: must be a table of settings")
        kind = kinds()[name]
        known = {one.name.replace("_", "-"): one for one in fields(kind) if not one.name.startswith("_")}  # type: ignore[arg-type]
        self._known(f"setting of {name}", given, tuple(known))
        values: dict[str, Any] = {}
        for key, value in given.items():
            is_whole = isinstance(known[key].default, int)
            if isinstance(known[key].default, str):
                if not isinstance(value, str) or not 0 < len(value) <= TEXT_MAX:
                    self._fail(f"[interventions.{name}] {key} = {value!r}: must be a text, not empty")
            elif not self._is_number(value) or (is_whole and not isinstance(value, int)):
                self._fail(f"[interventions.{name}] {key} = {value!r}: must be a {'whole ' if is_whole else ''}number")
            values[known[key].name] = value
        try:
            kind(**values).check()
        except ValueError as error:
            self._fail(f"[interventions.{name}] {error}")
        return values

    def _consistent(self, policy: Policy, symptoms: Mapping[str, Any], ladders: Mapping[str, Any]) -> None:
        """What the parts of the file say together."""
        acting = {**symptoms, OWN_RESPONSE: policy.default}
        for name, response in acting.items():
            if policy.base == "observe" and response in ("stop", "skip", "intervene"):
                self._fail(f"[symptoms] {name} = {response!r} contradicts policy = 'observe', which touches nothing")
            if response == "intervene" and name != OWN_RESPONSE and not policy.ladder(name):
                self._fail(f"[symptoms] {name} = 'intervene', but [ladders] has no ladder for it")
        if policy.base == "observe" and policy.always:
            self._fail(f"always = {list(policy.always)} contradicts policy = 'observe', which touches nothing")
        if policy.budget.skips_in_a_row > policy.budget.skips > 0:
            self._fail(f"[budget] skips-in-a-row = {policy.budget.skips_in_a_row} is more than skips, the total")
        if policy.default == "intervene" and not policy.ladders.get(SPIKE):
            self._fail("[symptoms] default = 'intervene', but [ladders] has no 'default'")
        for name in ladders:
            if name not in (NONFINITE, SPIKE) and policy.response(name) != "intervene":
                self._fail(f"[ladders] {name} is never used: [symptoms] {name} is {policy.response(name)!r}")

    # -- errors ----------------------------------------------------------------------------------------------------

    def _table(self, data: Mapping[str, Any], name: str) -> dict[str, Any]:
        table = data.get(name, {})
        if not isinstance(table, dict):
            self._fail(f"{name} = {table!r}: must be a table, [{name}]")
        return dict(table)

    def _known(self, word: str, given: Mapping[str, Any], known: tuple[str, ...]) -> None:
        for name in given:
            if name not in known:
                self._fail(f"{name!r}: no such {word}; {nearest(name, known)}")

    def _intervention(self, where: str, name: str) -> None:
        if name not in kinds():
            self._fail(f"{where}: {name!r}: no such intervention; {nearest(name, kinds())}")

    @staticmethod
    def _is_number(value: Any) -> bool:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)

    def _fail(self, why: str) -> None:
        raise UsageError(f"{self._file}: {why}")


def symptom_names() -> tuple[str, ...]:
    """The symptoms that a run may have."""
    return tuple(name_of(one) for one in detectors())


def as_toml(policy: Policy) -> str:
    """``policy`` as the text of a file that gives the same policy."""
    always = ["always = [" + ", ".join(f'"{one}"' for one in policy.always) + "]"] if policy.always else []
    lines = [f'policy = "{policy.base}"', *always, "", "[symptoms]"]
    lines += [f'{name} = "{policy.response(name)}"' for name in sorted(symptom_names()) if _is_said(policy, name)]
    lines += [f'default = "{policy.default}"', "", "[budget]"]
    lines += [f"{one.name.replace('_', '-')} = {getattr(policy.budget, one.name)}" for one in fields(Budget)]
    if policy.ladders:
        lines += ["", "[ladders]"]
    for name, rungs in policy.ladders.items():
        texts = ("[" + ", ".join(f'"{one}"' for one in rung) + "]" for rung in rungs)
        lines += [f"{name} = [", *(f"    {text}," for text in texts), "]"]
    for name, settings in policy.settings.items():
        lines += [
            "",
            f"[interventions.{name}]",
            *(f"{key.replace('_', '-')} = {_toml(value)}" for key, value in settings.items()),
        ]
    return "\n".join(lines)


def _toml(value: float | str) -> str:
    return as_json(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def _is_said(policy: Policy, name: str) -> bool:
    return policy.response(name) != policy.default
