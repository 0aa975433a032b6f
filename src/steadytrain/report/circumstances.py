"""The environment of a run: the facts shown beside the symptoms, and the environment in sections."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from steadytrain.core.model import Window
from steadytrain.report.report_values import Section
from steadytrain.report.slurm import ending, job_fact, signals_fact
from steadytrain.report.symptoms_shown import stream_names
from steadytrain.report.wording import ENTRIES_MAX, Fact, clean, clean_block, count, facts_of, sentences, titled
from steadytrain.storage.run_folder import Run

STRUCTURE_LENGTH_MAX = 60_000
REPLACED_SHOWN, MODELS_SHOWN = 1, 4
SHOWN_AS_FACTS = (
    *("format", "version", "name", "notes", "warnings", "argv", "started", "ended", "ended_at", "process", "slurm"),
    "detectors",
    # These have their own sections on a page.
    *("precision", "machine", "machine_notes", "clipped_before_unscaling", "cost"),
    *("replaced_optimizers", "other_models"),
)
_ENDINGS = {
    "finished": "finished",
    "stopped": "stopped by steadytrain",
    "interrupted": "interrupted",
    "failed": "failed",
    "running": "not yet: running",
    "killed": "killed",
}


def run_facts(run: Run, window: Window | None) -> tuple[Fact, ...]:
    description, facts = run.description, run.facts
    ended = ending(run) or _ENDINGS.get(run.state, "not recorded (killed, or still running elsewhere)")
    status = facts.get("exit_status")
    steps = None
    if window is not None and len(window):
        first, last = int(window.steps[0]), int(window.steps[-1])
        steps = count(len(window)) + (f" (number {count(first)} to {count(last)})" if first not in (0, 1) else "")
        rests = facts.get("rests")
        if isinstance(rests, dict) and isinstance(rests.get("steps"), int):
            steps += f" of {count(max(rests['steps'], len(window)))}"
    rank, size = description.get("rank"), description.get("world_size")
    return facts_of(
        ("command", command_line(description.get("argv"))),
        ("started", description.get("started")),
        ("ended", f"{ended}, status {status}" if status not in (None, 0) else ended),
        ("SLURM", job_fact(description)),
        ("signals", signals_fact(run)),
        ("steps", steps or "none"),
        ("cost", _cost(facts.get("cost"))),
        ("model", class_of(facts.get("model"))),
        ("optimizer", class_of(facts.get("optimizer"))),
        ("further models", _others(facts.get("other_models"), stream_names(run))),
        ("optimizer replaced", _replaced(facts.get("replaced_optimizers"))),
        ("policy", description.get("policy")),
        ("detectors", ", ".join(detectors(run))),
        ("rank", f"{rank} of {size}" if isinstance(size, int) and size > 1 else None),
        ("torch", facts.get("torch")),
        ("python", description.get("python")),
        ("git", git(description.get("git"))),
    )


def _replaced(fact: Any) -> str | None:
    """When other optimizers took the place of one, as the watch recorded it."""
    first = fact.get("first") if isinstance(fact, dict) else None
    if not isinstance(first, list) or not first or not isinstance(fact.get("count"), int):
        return None
    said = [_replacement(one) for one in first[:REPLACED_SHOWN] if isinstance(one, dict)]
    more = fact["count"] - len(said)
    return "; ".join(said) + (f"; {count(more)} more times" if more > 1 else "; once more" if more else "")


def _replacement(one: dict[str, Any]) -> str:
    old, new, rates = one.get("old"), one.get("new"), (one.get("old_rate"), one.get("new_rate"))
    kinds = f": {old} by another {new}" if old == new else f": {old} by {new}" if old else f" by {new}"
    changed = all(isinstance(rate, (int, float)) for rate in rates) and rates[0] != rates[1]
    rate = f", learning rate {rates[0]:.3g} to {rates[1]:.3g}" if changed else ""
    stream = "" if one.get("stream") == "main" else f" of {one.get('stream')}"
    return f"in step {one.get('step')}{stream}{kinds}{rate}"


def _cost(cost: Any) -> str | None:
    """What steadytrain's own work took of the run's time, on the training thread and on its own ones."""
    if not isinstance(cost, dict) or not all(isinstance(cost.get(name), (int, float)) for name in ("own_s", "run_s")):
        return None
    own_s = float(cost["own_s"])
    run_s = max(own_s, float(cost["run_s"]))  # set-up comes before the clock of the run
    if not run_s > 0.0:
        return None
    threads_s = cost.get("threads_s")
    beside = (
        f", and {threads_s:.1f} s of processor time beside it" if isinstance(threads_s, float) and threads_s else ""
    )
    return (
        f"{own_s:.1f} s of {run_s:.1f} s were steadytrain's work on the training thread ({own_s / run_s:.0%}){beside}"
    )


def detectors(run: Run) -> tuple[str, ...]:
    """The names of the detectors that ran, if the run recorded them."""
    return tuple(sentences(run.facts.get("detectors")))


def brief(facts: Sequence[Fact]) -> tuple[Fact, ...]:
    """The most important facts for a terminal, several per line."""
    values = {fact.label: fact.value for fact in facts}
    versions = [f"{name} {values[name]}" for name in ("torch", "python", "git") if name in values]
    when = [values[name] for name in ("started", "recorded") if name in values]
    span = [f"{values['steps']} steps" if "steps" in values else "", _ending(values)]
    cluster = [f"{name} {values[name]}" for name in ("SLURM", "signals") if name in values]
    return facts_of(
        ("command", values.get("command")),
        ("run", ", ".join(filter(None, [values.get("run", ""), *when, *span]))),
        ("cluster", "; ".join(cluster)),
        ("model", "; ".join(values[name] for name in ("model", "optimizer") if name in values)),
        ("further models", values.get("further models")),
        ("optimizer replaced", values.get("optimizer replaced")),
        ("with", ", ".join([*versions, *([values["device"]] if "device" in values else [])])),
        ("watched by", _counted(values.get("detectors", ""))),
        ("cost", values.get("cost")),
    )


def _counted(names: str) -> str | None:
    """The number of detectors: their names would fill a screen."""
    return f"{names.count(', ') + 1} detectors; `steadytrain explain` lists them" if names else None


def _ending(values: Mapping[str, str]) -> str:
    ended = values.get("ended", "")
    return f"end {ended}" if ended.startswith("not ") else ended


def environment_sections(environment: Mapping[str, Any], *, skipped: Sequence[str] = ()) -> tuple[Section, ...]:
    """The environment as sections: each nested value under its own title, plain values together."""
    plain: dict[str, Any] = {}
    sections = []
    for name, value in environment.items():
        if name in skipped or value in (None, "", [], {}):
            continue
        if isinstance(value, Mapping) and "structure" in value:
            rest = {key: entry for key, entry in value.items() if key != "structure"}
            structure = clean_block(value["structure"] or "", length_max=STRUCTURE_LENGTH_MAX)
            sections.append(Section(titled(name), _flat(rest), structure))
        elif isinstance(value, Mapping):
            sections.append(Section(titled(name), _flat(value)))
        else:
            plain[name] = value
    first = [Section("Process", _flat(plain))] if plain else []
    return tuple(section for section in [*first, *sections] if section.facts or section.text)


def _flat(value: Mapping[str, Any]) -> tuple[Fact, ...]:
    """Flatten nested mappings and lists of mappings to dotted names, at most ``ENTRIES_MAX``."""
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


def command_line(argv: Any) -> str:
    return shlex.join(map(str, argv)) if isinstance(argv, list) else ""


def _others(value: Any, names: Mapping[str, str]) -> str | None:
    """The models of further optimizers, by the names of these; None without any."""
    others = value.items() if isinstance(value, Mapping) else ()
    told = [
        f"{class_of(one)}, by {one.get('optimizer')} of {names.get(str(stream), stream)}"
        for stream, one in others
        if isinstance(one, Mapping)
    ]
    more = [f"and {len(told) - MODELS_SHOWN} more"] if len(told) > MODELS_SHOWN else []
    return "; ".join([*told[:MODELS_SHOWN], *more]) or None


def class_of(value: Any) -> str:
    """One line for a ``model`` or ``optimizer`` fact: its class and size."""
    if isinstance(value, list):
        return "; ".join(map(class_of, value))
    if not isinstance(value, Mapping):
        return str(value or "")
    name, size, tensors = value.get("class"), value.get("parameters"), value.get("tensors")
    sizes = [
        f"{count(held)} {what}" for held, what in ((size, "parameters"), (tensors, "tensors")) if isinstance(held, int)
    ]
    return ", ".join(filter(None, [str(name or ""), " in ".join(sizes)]))


def device(value: Any) -> str:
    if not isinstance(value, Mapping):
        return str(value or "")
    gpus = value.get("gpus")
    if isinstance(gpus, list) and gpus:
        names = [str(gpu.get("name", gpu)) if isinstance(gpu, Mapping) else str(gpu) for gpu in gpus]
        return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
    plain = [f"{entry}" for key, entry in value.items() if key in ("name", "type", "machine") and entry]
    return f"CPU ({', '.join(plain)})" if "gpus" in value and plain else ", ".join(plain)


def git(value: Any) -> str:
    if not isinstance(value, Mapping) or not value.get("commit"):
        return ""
    return f"{str(value['commit'])[:12]}{' with uncommitted changes' if value.get('dirty') else ''}"


def entry(value: Mapping[str, Any], first: str, second: str) -> Any:
    inner = value.get(first)
    return inner.get(second) if isinstance(inner, Mapping) else None
