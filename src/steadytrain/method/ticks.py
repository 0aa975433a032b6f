"""The checklist to carry away: five questions, each answered with evidence from disk, or with the command to run next.

Reads only what is on disk, without torch. A tick says that something was done, never that the run is healthy.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.core.notebook import as_html
from steadytrain.experiments.command_results import ROWS_WRITTEN
from steadytrain.grouping.catalog import declared
from steadytrain.method.evidence import NOT_JUDGED, Evidence, Tried, evidence_of
from steadytrain.method.steps import CLIPPING, FULL_PRECISION, LOWER_RATE, WARM_UP
from steadytrain.storage.run_folder import Run

SCHEMA = "steadytrain.checklist/1"
DATA_CHECKS = frozenset(
    (
        *("batch-leak", "label-alignment", "label-permutation", "loader-data", "packed-document-leak"),
        *("padding-invariance", "sequence-length", "token-audit", "tokenizer-match", "worker-randomness"),
    )
)
"""Checks of a preflight that look at batches."""

EVIDENCE_MAX = 4
PLACEHOLDER = "PATH"
"""What stands in a command for something that only the user knows."""

FLOAT32 = "torch.float32"


State = Literal["done", "not-needed", "open"]


@dataclass(frozen=True)
class Tick(JsonValue, keys="name title state done evidence command"):
    """One question of the checklist. ``state``: it was ``done``, it is ``not-needed`` (the first line of ``evidence``
    says why: a run without a symptom has none to reproduce), or it is ``open``.

    ``evidence`` are lines that name the command or trial, its result and the day; ``command`` is the one that would
    tick it, None if it is not open or nothing can.
    """

    name: str
    title: str
    state: State
    evidence: tuple[str, ...]
    command: str | None

    @property
    def done(self) -> bool:
        return self.state == "done"

    @property
    def is_open(self) -> bool:
        return self.state == "open"

    @property
    def words(self) -> str:
        """The state in a line of text."""
        return self.state.replace("-", " ")


@dataclass(frozen=True)
class Checklist(JsonValue, schema=SCHEMA):
    """The five ticks of a run or incident, in the order of the method. ``incident`` is the bundle or run that trials
    work on."""

    target: str
    incident: str
    ticks: tuple[Tick, ...]

    @property
    def next(self) -> str:
        """The command of the first thing that is left to do and can be pasted; if nothing is, that of the page."""
        open_ones = (tick.command for tick in self.ticks if tick.is_open and tick.command is not None)
        ready = (command for command in open_ones if PLACEHOLDER not in command.split())
        return next(ready, f"steadytrain report {named(Path(self.incident))}")

    def __repr__(self) -> str:
        return f"<Checklist of {self.target!r}: {sum(tick.done for tick in self.ticks)} of {len(self.ticks)} done>"

    def _repr_html_(self) -> str:
        shown = {tick.title: "; ".join((tick.words, *tick.evidence)) for tick in self.ticks}
        return as_html(f"Checklist of {self.target}", shown)


NOTHING_SEEN = "the run has no symptom that could be reproduced"
NOTHING_TO_REMOVE = "the run has no symptom that a trial could remove"


def checklist_of(path: Path) -> Checklist:
    """The checklist of a run folder or bundle.

    Raises:
        UsageError: not a run or bundle, or a damaged one.
    """
    evidence = evidence_of(path)
    ticks = (_reproduction(evidence), _data(evidence), _telemetry(evidence), _precision(evidence), _tuning(evidence))
    return Checklist(str(path), str(evidence.source), ticks)


def _reproduction(evidence: Evidence) -> Tick:
    made = evidence.commands.get("repro")
    lines = [f"repro, {made.when[:10]}: {made.what}"] if made is not None else []
    replayed = evidence.commands.get("replay")
    lines += [f"replay, {replayed.when[:10]}: {replayed.what}"] if replayed is not None else []
    name, title = "reproduction", "Minimal reproduction"
    if made is not None and made.done:
        return Tick(name, title, "done", tuple(lines), None)
    if made is not None and made.effect == ROWS_WRITTEN:
        return Tick(name, title, "not-needed", tuple(lines), None)
    if not evidence.has_symptom:
        return Tick(name, title, "not-needed", (NOTHING_SEEN, *lines), None)
    if evidence.alarms and not any(_can_be_cut(one.name) for one in evidence.alarms):
        why = f"repro makes no script for {evidence.alarms[0].name}"
        return Tick(name, title, "not-needed", (why, *lines), None)
    command = f"steadytrain repro {named(evidence.source)} -o repro" if made is None else None
    return Tick(name, title, "open", tuple(lines) or ("no repro was made",), command)


def _can_be_cut(symptom: str) -> bool:
    """Whether `repro` makes a script for it: it is a NaN, an Inf or a rise."""
    return declared(symptom).grows or declared(symptom).aim == "finite"


def _data(evidence: Evidence) -> Tick:
    lines, checks = [], [one for one in evidence.preflight.get("checks", ()) if one.get("name") in DATA_CHECKS]
    looked = [one for one in checks if one.get("status") != "not-run"]
    if looked:
        bad = [f"{one['name']} {one['status']}" for one in looked if one.get("status") != "pass"]
        day = str(evidence.preflight.get("created") or "")[:10]
        lines.append(f"preflight, {day}: {len(looked)} checks of batches, {', '.join(bad) or 'all passed'}")
    checked = [one for name, one in evidence.commands.items() if name.startswith("check-data ")]
    lines += [f"{one.command}, {one.when[:10]}: {one.what}" for one in checked]
    if not lines:
        surveyed = evidence.facts.get("surveyed_steps")
        lines.append(
            f"only the survey of diagnose looked at batches ({surveyed} steps)" if surveyed else "no data test was run"
        )
    run = evidence.run.path if evidence.run is not None else evidence.source
    state: State = "done" if looked or checked else "open"
    command = None if state == "done" else f"steadytrain check-data PATH --keep-with {named(run)}"
    return Tick("data", "Data tests", state, tuple(lines[:EVIDENCE_MAX]), command)


def _telemetry(evidence: Evidence) -> Tick:
    run, title = evidence.run, "Gradient and activation telemetry"
    if run is None:
        return Tick("telemetry", title, "open", ("the run of this incident is not here",), None)
    streams = run.streams()
    tables = run.tables(streams[0]) if streams else []
    level = run.description.get("level") or "?"
    have = [what for name, what in _MEASURED if name in tables]
    lacks = [what for name, what in _MEASURED if name not in tables]
    state: State = "done" if {"gradients", "modules"} <= set(tables) else "open"
    told = [f"run, level {level}, {_day(run)}: {', '.join(have) or 'losses only'} ({run.steps:,} steps)"]
    told += [f"not recorded: {', '.join(lacks)}"] if lacks else []
    command = None if state == "done" else f"steadytrain run --level standard {_script(evidence)}"
    return Tick("telemetry", title, state, tuple(told[:EVIDENCE_MAX]), command)


_MEASURED = (
    ("gradients", "gradient norms per tensor"),
    ("tensors", "weights, updates and moments per tensor"),
    ("modules", "outputs per module"),
)


def _precision(evidence: Evidence) -> Tick:
    title = "Precision experiment (fp32 against mixed)"
    ran = _ran(evidence, FULL_PRECISION)
    if ran:
        return Tick("precision", title, "done", tuple(map(_line, ran))[:EVIDENCE_MAX], None)
    if in_float32(evidence):
        why = "nothing to compare: parameters, gradients and logits are float32, without autocast"
        return Tick("precision", title, "not-needed", (why,), None)
    refused = [evidence.tried[name] for name in FULL_PRECISION if name in evidence.tried]
    if not evidence.has_symptom:
        return Tick("precision", title, "not-needed", (NOTHING_TO_REMOVE, *map(_line, refused))[:EVIDENCE_MAX], None)
    command = f"steadytrain trial {named(evidence.source)} float32"
    return Tick("precision", title, "open", tuple(map(_line, refused))[:EVIDENCE_MAX] or ("never tried",), command)


def in_float32(evidence: Evidence) -> bool:
    """Whether the run recorded that it computes in float32 throughout."""
    precision = evidence.run.facts.get("precision") if evidence.run is not None else None
    if not isinstance(precision, dict) or precision.get("autocast"):
        return False
    formats = {*(precision.get("parameters") or ()), *(precision.get("gradients") or ())}
    return bool(formats) and formats <= {FLOAT32} and precision.get("logits") in (None, FLOAT32)


def _tuning(evidence: Evidence) -> Tick:
    name, title = "tuning", "Learning rate, warm-up and clipping tried"
    lines: list[str] = []
    missing: list[str] = []
    for what, names in (("learning rate", LOWER_RATE), ("warm-up", WARM_UP), ("clipping", CLIPPING)):
        ran = _ran(evidence, names)
        if ran:
            lines.append(f"{what}: {'; '.join(map(_line, ran[:2]))}")
            continue
        refused = next((evidence.tried[name] for name in names if name in evidence.tried), None)
        lines.append(f"{what}: {_line(refused) if refused is not None else 'never tried'}")
        missing.append(names[0])
    if not missing:
        return Tick(name, title, "done", tuple(lines), None)
    if evidence.mended_by:
        why = f"a patch removes the symptom: {evidence.mended_by}"
        return Tick(name, title, "not-needed", (why, *lines), None)
    if not evidence.has_symptom:
        return Tick(name, title, "not-needed", (NOTHING_TO_REMOVE, *lines), None)
    return Tick(name, title, "open", tuple(lines), f"steadytrain trial {named(evidence.source)} {' '.join(missing)}")


def _ran(evidence: Evidence, names: Sequence[str]) -> list[Tried]:
    return [evidence.tried[name] for name in names if name in evidence.tried and evidence.tried[name].ran]


def _line(tried: Tried) -> str:
    effect = "run, not judged yet" if tried.effect == NOT_JUDGED else tried.effect
    return f"{tried.trial} {effect} ({tried.command}, {tried.when})"


def named(path: Path) -> str:
    """``path`` as a word of a command: relative to the current folder where it lies in it."""
    try:
        return shlex.quote(str(path.absolute().relative_to(Path.cwd())))
    except (ValueError, OSError):
        return shlex.quote(str(path))


def _day(run: Run) -> str:
    return str(run.description.get("started") or "")[:10]


def _script(evidence: Evidence) -> str:
    argv = evidence.run.description.get("argv") if evidence.run is not None else None
    return shlex.join(str(word) for word in argv) if isinstance(argv, list) and argv else "SCRIPT"
