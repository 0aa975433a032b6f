"""``ISSUE.md``: a draft of a bug report with the facts that maintainers usually ask for; ``NOTE.md`` where the value is
documented (``documented``).

Made from the bundle, the finding and the script; redacted and without paths. A person must decide whose bug it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding, OperandRange
from steadytrain.core.model import Window
from steadytrain.repro.documented import Documented, documented
from steadytrain.storage.bundle import Bundle
from steadytrain.storage.redaction import redact_arguments, redact_text
from steadytrain.storage.tree import decode

STEPS_SHOWN = 8
CHAIN_SHOWN = 6
LOGGERS = frozenset({"wandb", "mlflow", "tensorboard", "comet_ml", "steadytrain"})
"""Packages that take no part in a step and are left out."""

DRAFT_HEAD = "> Draft. Before you post it, read it, remove what is private, and say why you think it is a bug."
NOTE_HEAD = "> A note for your own project. There is nothing to report to PyTorch."

CURVES = ("loss", "gradient_norm", "learning_rate", "loss_scale")
VARIANT_WORDS: Mapping[str, str] = {
    "eager": "eager",
    "float64": "eager, all floating-point tensors in float64",
    "compiled": "torch.compile (default backend)",
    "aot_eager": "torch.compile, backend aot_eager",
    "inductor": "torch.compile, backend inductor",
    "cuda": "eager, on the GPU",
    "cpu": "eager, on the CPU",
}


@dataclass(frozen=True)
class Subject:
    """The subject of a report. ``facts`` come from ``made.json``; ``variants`` are the results under other
    conditions."""

    bundle: Bundle
    finding: Finding
    facts: Mapping[str, Any]
    variants: Mapping[str, str]
    script: str
    tensors_bytes: int | None


def issue_text(subject: Subject) -> str:
    """The draft as Markdown."""
    parts = (
        _what_happens(subject),
        script_parts(subject.script, subject.tensors_bytes, "fault"),
        _inputs(subject),
        _variants(subject),
        _training(subject),
    )
    title, environment = subject.facts["title"], subject.bundle.environment
    known = documented(subject.facts)
    if known is None:
        return draft(title, *parts, environment=environment)
    return draft(
        f"{title}: a note for this project", _by_design(known), *parts, environment=environment, head=NOTE_HEAD
    )


def _by_design(known: Documented) -> Iterator[str]:
    yield "## Why this is no bug of PyTorch"
    yield f"It is documented: {known.behaviour}. The fault lies in the code that lets such an input through."
    yield f"## Instead\n\n{known.instead}."


def draft(title: str, *parts: Iterable[str], environment: Mapping[str, Any], head: str = DRAFT_HEAD) -> str:
    """Puts a title, a note (``head``) and the environment around the parts of a draft."""
    lines = [
        f"# {title}",
        head,
        *chain(*parts, environment_parts(environment)),
    ]
    return "\n\n".join(lines) + "\n"


def _what_happens(subject: Subject) -> Iterator[str]:
    facts, located = subject.facts, subject.finding.located
    operations = ", ".join(f"`{operation}`" for operation in facts["operations"])
    yield "## What happens"
    if facts.get("backend") is not None:
        yield f"Compiled with {facts['backend']}, {operations} gives {facts['produced']}. All inputs are finite."
        yield "## What was expected"
        yield "The value of eager mode, which is finite; so is every value on the way."
        return
    if facts["backward"]:
        yield f"The gradient of `{facts['target']}` through {operations} holds {facts['produced']}."
        if facts["forward_finite"]:
            yield "All inputs, the incoming gradient and the result of the forward are finite."
        else:
            yield "All inputs and the incoming gradient are finite; the result of the forward is not."
    else:
        yield f"{operations} gives {facts['produced']}. All inputs are finite."
    if located is not None and located.operation not in facts["operations"]:
        yield f"The value first appears in `{located.operation_said}`, in the {located.phase}."
    yield "## What was expected"
    if documented(facts) is not None:
        yield "This value, by design. What should change is the input, or the form of the operation."
        return
    yield "A finite value, or an error. If this value is what is documented for these inputs, the report is not a bug."


def script_parts(script: str, tensors_bytes: int | None, shown: str) -> Iterator[str]:
    """The script and its tensors file. ``shown`` names in one word what makes it fail."""
    yield "## Script"
    beside = f" and `repro.pt` ({tensors_bytes:,} bytes)" if tensors_bytes is not None else ""
    yield f"`repro.py`{beside}; it needs torch alone and ends with an `AssertionError` while the {shown} is there."
    yield f"```python\n{script.rstrip()}\n```"


def _inputs(subject: Subject) -> Iterator[str]:
    yield "## Inputs"
    rows = ["| tensor | in this script | in the training run | device |", "|---|---|---|---|"]
    for small, captured in zip(subject.facts["inputs"], subject.facts["captured"], strict=True):
        here, there = OperandRange.from_json(small), OperandRange.from_json(captured)
        rows.append(f"| `{here.name}` | {here.summary()} | {there.summary()} | {subject.facts['device']} |")
    yield "\n".join(rows)


def _variants(subject: Subject) -> Iterator[str]:
    yield "## Under other conditions"
    rows = ["| condition | result |", "|---|---|"]
    rows += [f"| {VARIANT_WORDS.get(name, name)} | {result} |" for name, result in subject.variants.items()]
    yield "\n".join(rows)


def _training(subject: Subject) -> Iterator[str]:
    incident = subject.bundle.incident
    yield "## Where it came from"
    lines = [f"- first seen in step {incident.step} of a training run; the value reached the {_reached(subject)}"]
    lines += _place(subject.finding)
    lines += run_lines(subject.bundle.environment)
    lines.append(f"- autocast: {_autocast(subject.bundle)}")
    if subject.finding.located is not None:
        lines.append(f"- how it was found: {subject.finding.located.method}; the fault came again")
    elif subject.facts.get("backend") is not None:
        lines.append("- how it was found: the step is finite in eager mode; its loss was compiled and cut down")
    yield "\n".join(lines)
    yield curves(subject.bundle.window.last(STEPS_SHOWN))


def run_lines(environment: Mapping[str, Any]) -> Iterator[str]:
    """Facts about the training, one line each."""
    model = environment.get("model") or {}
    if model:
        count = f"{model.get('parameters', 0):,} parameters"
        yield f"- model: {model.get('class')}, {count}, dtypes {_counts(model)}"
    for entry in environment.get("optimizer") or []:
        yield f"- optimizer: {_optimizer(entry)}"
    before = environment.get("steps_before")
    yield f"- resumed: {f'yes, after step {before}' if before else 'no'}"
    yield f"- processes: {environment.get('world_size', 1)}, this one is number {environment.get('rank', 0)}"
    yield f"- command: `{_command(environment.get('argv') or [])}`"


def _place(finding: Finding) -> Iterator[str]:
    located = finding.located
    if located is None:
        return
    where = f"in `{located.module}`" if located.module else "outside the model's layers"
    yield f"- place: {located.phase}, {where}, `{located.operation_said}` made {located.produced}"
    if located.code:
        yield f"- line: `{redact_text(located.code)}` ({PurePath(located.file or '').name}:{located.line})"
    if located.chain:
        yield f"- then: {' -> '.join(redact_text(link) for link in located.chain[:CHAIN_SHOWN])}"


def curves(window: Window) -> str:
    """A table of the last steps, which shows whether the fault came suddenly."""
    shown = [name for name in CURVES if len(window.series(name).values)]
    rows = [f"| step | {' | '.join(shown)} |", "|---" * (len(shown) + 1) + "|"]
    for at, step in enumerate(window.steps):
        cells = (f"{window.signals[name][at]:.6g}" if window.present[name][at] else "" for name in shown)
        rows.append(f"| {int(step)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def environment_parts(environment: Mapping[str, Any]) -> Iterator[str]:
    """Versions, devices and settings."""
    yield "## Versions"
    device = environment.get("device") or {}
    gpus = [f"{gpu.get('name')} ({gpu.get('capability')})" for gpu in device.get("gpus") or []]
    lines = [
        f"- Python {environment.get('python')}, {environment.get('platform')}",
        f"- GPUs: {', '.join(gpus) or 'none'}; processors {device.get('processors')}",
    ]
    if gpus or device.get("cuda"):
        lines.append(f"- CUDA {device.get('cuda')}, cuDNN {device.get('cudnn')}, driver {device.get('driver')}")
    versions = environment.get("versions") or {}
    lines += [f"- {name} {version}" for name, version in versions.items() if name not in LOGGERS]
    lines += [f"- {name}: {value}" for name, value in (environment.get("numerics") or {}).items()]
    for name, value in (environment.get("environment") or {}).items():
        if not str(value).startswith(("/", "~")):  # folders reveal the user's machine, not the fault
            lines.append(f"- {name}={redact_text(str(value))}")
    yield "\n".join(lines)


def _reached(subject: Subject) -> str:
    return redact_text(subject.finding.located.reached) if subject.finding.located else "loss or a gradient"


def _counts(model: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in (model.get("dtypes") or {}).items()) or "unknown"


def _optimizer(entry: Mapping[str, Any]) -> str:
    groups = entry.get("groups") or [{}]
    settings = ", ".join(f"{name}={value}" for name, value in groups[0].items() if value is not None)
    more = f" (and {len(groups) - 1} more groups)" if len(groups) > 1 else ""
    return redact_text(f"{entry.get('class')}({settings}){more}")


def _command(arguments: Sequence[str]) -> str:
    """The command without folders, which reveal the user's machine."""
    plain = [PurePath(one).name if one.startswith(("/", "~")) else one for one in redact_arguments(list(arguments))]
    return " ".join(plain).replace("`", "'")


def _autocast(bundle: Bundle) -> str:
    path: Path = bundle.path / "batches.json"
    try:
        calls = read_json(path, bytes_max=DOCUMENT_BYTES_MAX)["calls"]
        tree = next(call["call"] for call in calls if call["step"] == bundle.incident.step)
        state = decode(dict(tree["dict"])["autocast"], {})
        return ", ".join(f"{device} {dtype}" for device, dtype in state["enabled"]) or "off"
    except (OSError, ValueError, KeyError, TypeError, StopIteration, UsageError):
        return "unknown"
