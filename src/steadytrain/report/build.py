"""A plain ``Report`` value from a run folder or an incident bundle. Everything a renderer shows is decided here.

A report says what was seen, where and when, what was done about it and what to do next, and also what was not
looked at: silence is not called health. What comes from the disk is cleaned of control characters, because a run
may come from a stranger and a terminal obeys escape sequences. Not here: causes. A report names no cause that
nothing has tested.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadytrain.errors import UsageError
from steadytrain.model import Action, BadTensor, Incident, Located, OperandRange, Severity, Symptom, Window, worst
from steadytrain.report.curves import Curve, curve
from steadytrain.store.bundle import Bundle, open_for_report
from steadytrain.store.folder import RunRecord, open_run

INCIDENTS_MAX = 8
SYMPTOMS_MAX = 100
PARAMETERS_MAX = 24
TENSORS_MAX = 8
CHAIN_MAX = 24
ENTRIES_MAX = 300
RANKS_MAX = 256
TEXT_LENGTH_MAX = 4_000
STRUCTURE_LENGTH_MAX = 60_000

_CURVES = (
    ("loss", "loss", "linear"),
    ("gradient_norm", "gradient norm", "log"),
    ("learning_rate", "learning rate", "linear"),
)
_SILENCE = "Silence is not health: only what these detectors look for was looked for."
_ENDINGS = {
    "finished": "finished",
    "stopped": "stopped by steadytrain",
    "failed": "failed",
}


@dataclass(frozen=True)
class Fact:
    """A label and its value, both ready to be shown."""

    label: str
    value: str


@dataclass(frozen=True)
class Command:
    """A command worth running next, and what it is for."""

    purpose: str
    line: str


@dataclass(frozen=True)
class SymptomRow:
    """A symptom as shown. ``steps`` is the range as text, ``origin`` the stream or rank when it is not the main one."""

    name: str
    severity: Severity
    first_step: int
    last_step: int
    steps: str
    origin: str
    message: str
    tensors: str


@dataclass(frozen=True)
class Place:
    """The first bad operation as shown."""

    operation: str
    produced: str
    phase: str
    module: str
    line: str
    code: str
    inputs: tuple[Fact, ...]
    chain: tuple[str, ...]
    reached: str
    method: str


@dataclass(frozen=True)
class IncidentPart:
    """One incident as shown; ``place`` is None where the operation is not known and ``why`` says why."""

    title: str
    path: str
    step: int
    place: Place | None
    why: str
    losses: str
    parameters: tuple[Fact, ...]
    action: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Section:
    """A titled group of facts of the environment, with one longer text (a printed model) where there is one."""

    title: str
    facts: tuple[Fact, ...]
    text: str = ""


@dataclass(frozen=True)
class Report:
    """All that a page or a terminal shows, in the order in which a tired person needs it.

    ``brief`` is ``facts`` in a few lines, for a terminal.
    """

    title: str
    verdict: str
    severity: Severity | None
    summary: tuple[str, ...]
    facts: tuple[Fact, ...]
    brief: tuple[Fact, ...]
    curves: tuple[Curve, ...]
    symptoms: tuple[SymptomRow, ...]
    incidents: tuple[IncidentPart, ...]
    commands: tuple[Command, ...]
    notes: tuple[str, ...]
    environment: tuple[Section, ...]


def from_bundle(bundle: Bundle) -> Report:
    """The report of one incident."""
    incident, environment = bundle.incident, bundle.environment
    part = _incident_part(incident, bundle.path)
    target = shlex.quote(str(bundle.path))
    facts = _facts(
        ("run", incident.run),
        ("step", _count(incident.step)),
        ("stream", incident.stream if incident.stream != "main" else None),
        ("recorded", incident.created),
        ("command", _command(environment.get("argv"))),
        ("model", _class_of(environment.get("model"))),
        ("optimizer", _class_of(environment.get("optimizer"))),
        ("torch", _at(environment, "versions", "torch")),
        ("python", environment.get("python")),
        ("device", _device(environment.get("device"))),
        ("git", _git(environment.get("git"))),
    )
    commands = [Command("keep this as a page", f"steadytrain report {target} -o report.html")]
    if incident.finding.located is None:
        commands.insert(0, Command("search for the first bad operation", f"steadytrain locate {target}"))
    commands += _explanations(incident.symptoms)
    return Report(
        title=f"Incident at step {_count(incident.step)} of {clean(incident.run)}",
        verdict=_incident_verdict(incident),
        severity=worst([symptom.severity for symptom in incident.symptoms]),
        summary=(part.action,),
        facts=facts,
        brief=_brief(facts),
        curves=_curves(bundle.window),
        symptoms=_symptom_rows([(symptom, "") for symptom in incident.symptoms]),
        incidents=(part,),
        commands=_terminal_safe(commands),
        notes=_window_notes(bundle.window),
        environment=_environment(environment),
    )


def from_run(run: RunRecord) -> Report:
    """The report of a whole run: its symptoms on its curves, and its incidents."""
    streams = run.streams()
    window = run.scalars(streams[0]) if streams else None
    steps = len(window) if window is not None else 0
    notes: list[str] = []
    seen = [(symptom, "") for symptom in run.symptoms]
    actions, paths = list(run.actions), list(run.incidents)
    for rank in run.ranks[:RANKS_MAX]:
        try:
            record = open_run(rank)
        except UsageError as error:
            notes.append(f"Rank folder not read: {error}")
            continue
        seen += [(symptom, f"rank {rank.name.removeprefix('rank-')}") for symptom in record.symptoms]
        paths += record.incidents
        actions += record.actions
    incidents, unread = _open_incidents(paths)
    notes += unread
    facts = _run_facts(run, window)
    if len(seen) > SYMPTOMS_MAX:
        notes.append(f"{len(seen)} symptoms are recorded; the first {SYMPTOMS_MAX} are shown.")
    target = shlex.quote(str(run.path))
    commands = [
        Command("look into the first incident", f"steadytrain show {shlex.quote(part.path)}") for part in incidents[:1]
    ]
    commands.append(Command("keep this as a page", f"steadytrain report {target} -o report.html"))
    commands += _explanations([symptom for symptom, _ in seen])
    return Report(
        title=f"Run {clean(run.name)}",
        verdict=_run_verdict(run, [symptom for symptom, _ in seen], incidents, steps),
        severity=worst([symptom.severity for symptom, _ in seen]),
        summary=_run_summary(run, seen, actions, steps),
        facts=facts,
        brief=_brief(facts),
        curves=_curves(window) if window is not None else (),
        symptoms=_symptom_rows(seen),
        incidents=tuple(incidents),
        commands=_terminal_safe(commands),
        notes=(*_sentences(run.facts.get("notes")), *_sentences(run.facts.get("warnings")), *map(clean, notes))
        + (_window_notes(window) if window is not None else ()),
        environment=_environment({**run.description, **run.facts}, skipped=_SHOWN_AS_FACTS),
    )


def detectors(run: RunRecord) -> tuple[str, ...]:
    """The names of the detectors that looked at the run, as far as it says."""
    return tuple(_sentences(run.facts.get("detectors")))


def clean(value: object, *, length_max: int = TEXT_LENGTH_MAX) -> str:
    """``value`` as one safe line of text: control and direction-changing characters made visible, length bounded."""
    return clean_block(value, length_max=length_max).replace("\n", " ⏎ ")


def clean_block(value: object, *, length_max: int = TEXT_LENGTH_MAX) -> str:
    """Like :func:`clean`, with the line breaks kept."""
    text = str(value)
    if len(text) > length_max:
        text = f"{text[:length_max]}… ({len(text)} characters)"
    return _UNSAFE.sub(lambda match: _visible(match[0]), text.expandtabs(4).replace("\r\n", "\n"))


def number(value: float) -> str:
    """A value with four significant digits, ``nan`` and ``inf`` as such."""
    return f"{value:.4g}"


# Control characters but the line break, surrogates, and marks that reorder or hide text.
_UNSAFE = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\ud800-\udfff\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
_SHOWN_AS_FACTS = ("format", "version", "name", "notes", "warnings", "argv", "started", "ended", "ended_at")


def _visible(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


# Verdicts: one sentence, what a person reads first.


def _incident_verdict(incident: Incident) -> str:
    located = incident.finding.located
    if located is None:
        what = clean(incident.symptoms[0].message) if incident.symptoms else "a value was not finite"
        return f"Step {_count(incident.step)}: {what}"
    where = f" in {clean(located.module)}" if located.module else ""
    line = f", {clean(_short_line(located))}" if located.file else ""
    return (
        f"Step {_count(incident.step)}: the first {_produced(located)} came from "
        f"{clean(located.operation)} ({located.phase}){where}{line}"
    )


def _run_verdict(run: RunRecord, symptoms: Sequence[Symptom], incidents: Sequence[IncidentPart], steps: int) -> str:
    if incidents:
        more = f" ({len(run.incidents)} incidents in all)" if len(run.incidents) > 1 else ""
        return f"{incidents[0].title}{more}"
    if symptoms:
        gravest = worst([symptom.severity for symptom in symptoms])
        first = next(symptom for symptom in symptoms if symptom.severity == gravest)
        return f"{first.severity}: {clean(first.name)} at {_step_range(first)}: {clean(first.message)}"
    if not steps:
        return "No step was recorded"
    names = detectors(run)
    if not names:
        return f"No symptom is recorded over {_count(steps)} steps; the run does not say which detectors looked"
    looked = f"{len(names)} detector{'s' if len(names) != 1 else ''} looked"
    return f"No symptom was seen: {looked} at {_count(steps)} steps ({', '.join(names)})"


def _run_summary(
    run: RunRecord, seen: Sequence[tuple[Symptom, str]], actions: Sequence[Action], steps: int
) -> tuple[str, ...]:
    lines = []
    partly = sorted({action.step for action in actions if action.what == "refused-rest-of-update"})
    refused = sorted({action.step for action in actions if action.what == "refused-update"})
    if partly:
        lines.append(
            f"steadytrain touched this run: it refused the rest of the update of step {_count(partly[0])}, whose "
            "optimizer had moved the weights in earlier evaluations of its closure."
        )
    if len(refused) == 1:
        lines.append(
            f"steadytrain touched this run: it refused the update of step {_count(refused[0])}, "
            "so weights and optimizer state are as they were before it."
        )
    elif refused:
        steps_refused = _enumerate([_count(step) for step in refused], TENSORS_MAX)
        lines.append(f"steadytrain touched this run: it refused the updates of steps {steps_refused}.")
    if run.ended == "failed":
        status = run.facts.get("exit_status")
        lines.append(f"The script failed{f' with status {clean(status)}' if status is not None else ''}.")
    elif run.ended is None:
        lines.append("The run did not say how it ended: it was killed, or is still going.")
    if not seen and steps:
        lines.append(_SILENCE)
    return tuple(lines)


def _action_sentence(incident: Incident) -> str:
    action = incident.action
    reason = f" ({clean(action.reason)})" if action.reason else ""
    if action.what == "refused-update":
        return (
            f"The update of step {_count(action.step)} was refused: "
            f"weights and optimizer state are as they were before it{reason}."
        )
    if action.what == "refused-rest-of-update":
        return (
            f"The rest of the update of step {_count(action.step)} was refused: its optimizer had moved the weights in "
            f"earlier evaluations of its closure{reason}."
        )
    return f"steadytrain only observed step {_count(action.step)} and changed nothing{reason}."


# The parts of a report.


def _open_incidents(paths: Sequence[Path]) -> tuple[list[IncidentPart], list[str]]:
    parts, notes = [], []
    for path in paths[:INCIDENTS_MAX]:
        try:
            parts.append(_incident_part(open_for_report(path).incident, path))
        except UsageError as error:
            notes.append(f"Incident not opened: {error}")
    if len(paths) > INCIDENTS_MAX:
        notes.append(f"{len(paths)} incidents are recorded; the first {INCIDENTS_MAX} are shown.")
    return parts, notes


def _incident_part(incident: Incident, path: Path) -> IncidentPart:
    located = incident.finding.located
    parameters = [_bad_tensor(tensor) for tensor in incident.parameters[:PARAMETERS_MAX]]
    if len(incident.parameters) > PARAMETERS_MAX:
        parameters.append(Fact("…", f"and {len(incident.parameters) - PARAMETERS_MAX} more"))
    losses = _enumerate([number(loss) for loss in incident.losses], TENSORS_MAX)
    if incident.loss_origin and losses:
        losses += f" (from {clean(incident.loss_origin)})"
    notes = (
        f"Batches: {incident.batch_note}" if incident.batch_note else "",
        f"State: {incident.state_note}" if incident.state_note else "",
    )
    return IncidentPart(
        title=_incident_verdict(incident),
        path=str(path),
        step=incident.step,
        place=_place(located) if located else None,
        why=clean(incident.finding.why),
        losses=losses,
        parameters=tuple(parameters),
        action=_action_sentence(incident),
        notes=tuple(clean(note) for note in notes if note),
    )


def _place(located: Located) -> Place:
    chain = [clean(name) for name in located.chain[:CHAIN_MAX]]
    if len(located.chain) > CHAIN_MAX:
        chain.append(f"and {len(located.chain) - CHAIN_MAX} more")
    return Place(
        operation=clean(located.operation),
        produced=_produced(located),
        phase=located.phase,
        module=_module(located),
        line=clean(f"{located.file}:{located.line}") if located.file else "not known",
        code=clean((located.code or "").strip()),
        inputs=tuple(Fact(clean(operand.name), _operand(operand)) for operand in located.inputs[:PARAMETERS_MAX]),
        chain=tuple(chain),
        reached=clean(located.reached),
        method=clean(located.method),
    )


def _operand(operand: OperandRange) -> str:
    if operand.text is not None:
        return clean(operand.text)
    parts = []
    if operand.dtype is not None or operand.shape is not None:
        shape = str(list(operand.shape)) if operand.shape is not None else ""
        parts.append(clean(" ".join(filter(None, [(operand.dtype or "").removeprefix("torch."), shape]))))
    if operand.smallest is not None and operand.largest is not None:
        parts.append(f"{number(operand.smallest)} to {number(operand.largest)}")
    parts += [
        f"{_count(count)} {what}"
        for count, what in ((operand.zeros, "zeros"), (operand.nan, "NaN"), (operand.inf, "Inf"))
        if count
    ]
    return ", ".join(parts)


def _bad_tensor(tensor: BadTensor) -> Fact:
    shape = list(tensor.shape)
    counts = " and ".join(f"{_count(bad)} {what}" for bad, what in ((tensor.nan, "NaN"), (tensor.inf, "Inf")) if bad)
    value = f"{counts or 'none bad'} of {_count(tensor.count)} elements, {tensor.dtype.removeprefix('torch.')} {shape}"
    return Fact(clean(tensor.name), clean(value))


def _symptom_rows(seen: Sequence[tuple[Symptom, str]]) -> tuple[SymptomRow, ...]:
    return tuple(
        SymptomRow(
            name=clean(symptom.name),
            severity=symptom.severity,
            first_step=symptom.first_step,
            last_step=symptom.last_step,
            steps=_step_range(symptom),
            origin=clean(origin or (symptom.stream if symptom.stream != "main" else "")),
            message=clean(symptom.message),
            tensors=_enumerate([clean(name) for name in symptom.tensors], TENSORS_MAX),
        )
        for symptom, origin in seen[:SYMPTOMS_MAX]
    )


def _curves(window: Window) -> tuple[Curve, ...]:
    drawn = (curve(name, title, window.series(name), scale=scale) for name, title, scale in _CURVES)
    return tuple(found for found in drawn if found is not None)


def _window_notes(window: Window) -> tuple[str, ...]:
    skipped = int(window.skipped.sum())
    missing = [title for name, title, _ in _CURVES[:2] if not len(window.series(name))]
    notes = [f"The {title} was not recorded, so nothing is said of it." for title in missing] if len(window) else []
    if skipped:
        notes.append(f"The gradient scaler skipped {_count(skipped)} step{'s' if skipped > 1 else ''} by itself.")
    return tuple(notes)


def _run_facts(run: RunRecord, window: Window | None) -> tuple[Fact, ...]:
    description, facts = run.description, run.facts
    ended = _ENDINGS.get(run.ended or "", "not recorded (killed, or still going)")
    status = facts.get("exit_status")
    steps = None
    if window is not None and len(window):
        first, last = int(window.steps[0]), int(window.steps[-1])
        steps = _count(len(window)) + (f" (number {_count(first)} to {_count(last)})" if first not in (0, 1) else "")
    rank, size = description.get("rank"), description.get("world_size")
    return _facts(
        ("command", _command(description.get("argv"))),
        ("started", description.get("started")),
        ("ended", f"{ended}, status {status}" if status not in (None, 0) else ended),
        ("steps", steps or "none"),
        ("model", _class_of(facts.get("model"))),
        ("optimizer", _class_of(facts.get("optimizer"))),
        ("policy", description.get("policy")),
        ("detectors", ", ".join(detectors(run))),
        ("rank", f"{rank} of {size}" if isinstance(size, int) and size > 1 else None),
        ("torch", facts.get("torch")),
        ("python", description.get("python")),
        ("git", _git(description.get("git"))),
    )


def _brief(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The facts worth a line on a terminal, several to a line."""
    values = {fact.label: fact.value for fact in facts}
    versions = [f"{name} {values[name]}" for name in ("torch", "python", "git") if name in values]
    when = [values[name] for name in ("started", "recorded") if name in values]
    span = [f"{values['steps']} steps" if "steps" in values else "", _ending(values)]
    return _facts(
        ("command", values.get("command")),
        ("run", ", ".join(filter(None, [values.get("run", ""), *when, *span]))),
        ("model", "; ".join(values[name] for name in ("model", "optimizer") if name in values)),
        ("with", ", ".join([*versions, *([values["device"]] if "device" in values else [])])),
        ("watched by", values.get("detectors")),
    )


def _ending(values: Mapping[str, str]) -> str:
    ended = values.get("ended", "")
    return f"end {ended}" if ended.startswith("not ") else ended


def _environment(environment: Mapping[str, Any], *, skipped: Sequence[str] = ()) -> tuple[Section, ...]:
    """The environment as sections: nested values under their own title, plain ones together."""
    plain: dict[str, Any] = {}
    sections = []
    for name, value in environment.items():
        if name in skipped or value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping) and "structure" in value:
            rest = {key: entry for key, entry in value.items() if key != "structure"}
            structure = clean_block(value["structure"] or "", length_max=STRUCTURE_LENGTH_MAX)
            sections.append(Section(_titled(name), _flat(rest), structure))
        elif isinstance(value, Mapping):
            sections.append(Section(_titled(name), _flat(value)))
        else:
            plain[name] = value
    first = [Section("Process", _flat(plain))] if plain else []
    return tuple(section for section in [*first, *sections] if section.facts or section.text)


def _flat(value: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Nested mappings and lists of mappings as dotted names; at most ``ENTRIES_MAX``."""
    found: list[Fact] = []

    def walk(name: str, node: Any) -> None:
        if len(found) > ENTRIES_MAX:
            return
        if isinstance(node, Mapping) and node:
            for key, entry in node.items():
                walk(f"{name}.{key}" if name else str(key), entry)
        elif isinstance(node, list) and any(isinstance(entry, (Mapping, list)) for entry in node):
            for index, entry in enumerate(node):
                walk(f"{name}.{index}", entry)
        elif isinstance(node, list):
            found.append(Fact(clean(name), clean(", ".join(map(str, node)))))
        else:
            found.append(Fact(clean(name), "none" if node is None else clean(node)))

    walk("", value)
    if len(found) > ENTRIES_MAX:
        found[ENTRIES_MAX:] = [Fact("…", "more entries are in the file")]
    return tuple(found)


# Small pieces of wording.


def _explanations(symptoms: Sequence[Symptom]) -> list[Command]:
    names = list(dict.fromkeys(symptom.name for symptom in symptoms))
    return [Command("what it means", f"steadytrain explain {shlex.quote(name)}") for name in names[:3]]


def _terminal_safe(commands: Iterable[Command]) -> tuple[Command, ...]:
    return tuple(Command(command.purpose, clean(command.line)) for command in commands)


def _facts(*pairs: tuple[str, Any]) -> tuple[Fact, ...]:
    return tuple(Fact(label, clean(value)) for label, value in pairs if value not in (None, "", [], {}))


def _sentences(value: Any) -> tuple[str, ...]:
    return tuple(clean(entry) for entry in value[:ENTRIES_MAX]) if isinstance(value, list) else ()


def _command(argv: Any) -> str:
    return shlex.join(map(str, argv)) if isinstance(argv, list) else ""


def _module(located: Located) -> str:
    if located.module:
        return clean(located.module)
    return "the model itself" if located.phase == "forward" else "outside the model's modules"


def _class_of(value: Any) -> str:
    """``model`` and ``optimizer`` facts in one line: the class and how large it is."""
    if isinstance(value, list):
        return "; ".join(map(_class_of, value))
    if not isinstance(value, Mapping):
        return str(value or "")
    name, size, tensors = value.get("class"), value.get("parameters"), value.get("tensors")
    sizes = [
        f"{_count(count)} {what}"
        for count, what in ((size, "parameters"), (tensors, "tensors"))
        if isinstance(count, int)
    ]
    return ", ".join(filter(None, [str(name or ""), " in ".join(sizes)]))


def _device(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value or "")
    gpus = value.get("gpus")
    if isinstance(gpus, list) and gpus:
        names = [str(gpu.get("name", gpu)) if isinstance(gpu, Mapping) else str(gpu) for gpu in gpus]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    plain = [f"{entry}" for key, entry in value.items() if key in ("name", "type", "machine") and entry]
    return f"CPU ({', '.join(plain)})" if "gpus" in value and plain else ", ".join(plain)


def _git(value: Any) -> str:
    if not isinstance(value, Mapping) or not value.get("commit"):
        return ""
    return f"{str(value['commit'])[:12]}{' with uncommitted changes' if value.get('dirty') else ''}"


def _at(value: Mapping[str, Any], first: str, second: str) -> Any:
    inner = value.get(first)
    return inner.get(second) if isinstance(inner, Mapping) else None


def _step_range(symptom: Symptom) -> str:
    if symptom.first_step == symptom.last_step:
        return f"step {_count(symptom.first_step)}"
    return f"steps {_count(symptom.first_step)} to {_count(symptom.last_step)}"


def _produced(located: Located) -> str:
    return {"nan": "NaN", "inf": "Inf"}[located.produced]


def _short_line(located: Located) -> str:
    return f"{Path(located.file or '').name}:{located.line}"


def _enumerate(names: Sequence[str], shown_max: int) -> str:
    more = f" and {len(names) - shown_max} more" if len(names) > shown_max else ""
    return ", ".join(names[:shown_max]) + more


def _titled(name: str) -> str:
    words = clean(name).replace("_", " ")
    return words[:1].upper() + words[1:]


def _count(value: int) -> str:
    return f"{value:,}"
