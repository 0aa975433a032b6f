"""Real run folders and incident bundles, written small: what the tests of the desk half read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steadytrain.core.incident import Action, BadTensor, Finding, Incident, Located, OperandRange
from steadytrain.core.model import Symptom, Window
from steadytrain.storage.bundle import seal, write_json
from steadytrain.storage.run_folder import RunWriter
from steadytrain.storage.segments import SegmentWriter, StepRecord, window_of, write_window

TENSORS = ("model.embed.weight", "model.head.weight", "model.head.bias")
DESCRIPTION: dict[str, Any] = {
    "name": "copper-lynx",
    "argv": ["train.py", "--learning-rate", "3e-4"],
    "script": "train.py",
    "cwd": "/home/user/project",
    "started": "2026-11-20T02:58:11+00:00",
    "policy": "stop",
    "python": "3.11.7",
    "git": {"commit": "0123456789abcdef0123456789abcdef01234567", "dirty": True},
    "steadytrain": "0.1.0",
    "rank": 0,
    "world_size": 1,
    "pid": 4711,
}
FACTS: dict[str, Any] = {
    "ended": "stopped",
    "exit_status": 1,
    "ended_at": "2026-11-20T03:02:40+00:00",
    "torch": "2.13.0",
    "model": {"class": "Transformer", "parameters": 12_345_678, "tensors": 148},
    "optimizer": {"class": "torch.optim.adamw.AdamW"},
    "notes": ["The batches of steps before 409 were not kept: the ring holds 4 steps."],
    "detectors": ["nonfinite-loss", "nonfinite-gradient"],
    "warnings": [],
}
ENVIRONMENT: dict[str, Any] = {
    "versions": {"torch": "2.13.0", "numpy": "2.4.6", "transformers": "5.1.0"},
    "python": "3.11.7",
    "platform": "Linux-6.1-x86_64",
    "device": {"machine": "x86_64", "processors": 2, "cuda": None, "gpus": []},
    "git": DESCRIPTION["git"],
    "argv": DESCRIPTION["argv"],
    "environment": {"OMP_NUM_THREADS": "2"},
    "configuration": {"learning_rate": 3e-4, "model.config": {"hidden": 64, "layers": 2}},
    "dtypes": {"torch.float32": 12_345_678},
    "model": {
        "class": "Transformer",
        "structure": "Transformer(\n  (embed): Embedding(1000, 64)\n  (head): Linear(in_features=64)\n)",
    },
    "optimizer": {"class": "torch.optim.adamw.AdamW", "groups": [{"lr": 3e-4, "weight_decay": 0.1, "parameters": 148}]},
}


def records(count: int, *, nan_at: int | None = None, first: int = 1) -> list[StepRecord]:
    """``count`` steps of a loss that falls; from ``nan_at`` on nothing is finite and the step is refused."""
    random = np.random.default_rng(7)
    found = []
    for step in range(first, first + count):
        bad = nan_at is not None and step >= nan_at
        scalars: dict[str, float | None] = {
            "loss": float("nan") if bad else float(6 * np.exp(-step / count) + random.normal(0, 0.05)),
            "gradient_norm": float("nan") if bad else float(np.exp(random.normal(0, 0.4))),
            "learning_rate": 3e-4 * min(1.0, step / (count / 10)),
            "step_s": 0.1,
        }
        norms = np.array([0.5, np.nan if bad else 0.4, np.inf if bad else 0.1], np.float32)
        found.append(StepRecord(step, 1_790_000_000.0 + step, scalars, norms, refused=bad))
    return found


def symptom(step: int = 412, *, last: int | None = None, **changes: Any) -> Symptom:
    values: dict[str, Any] = {
        "name": "nonfinite-gradient",
        "severity": "critical",
        "first_step": step,
        "last_step": step if last is None else last,
        "message": "2 of 3 gradients are not finite",
        "signals": ("gradient_norm",),
        "tensors": TENSORS[1:],
        "numbers": {"gradient_norm": float("nan")},
    }
    return Symptom(**{**values, **changes})


def located(**changes: Any) -> Located:
    values: dict[str, Any] = {
        "phase": "forward",
        "operation": "aten.log.default",
        "produced": "inf",
        "module": "model.head.norm",
        "file": "/home/user/project/train.py",
        "line": 88,
        "code": "score = torch.log(probability)",
        "inputs": (
            OperandRange("self", (32, 10), "torch.float32", "cpu", smallest=0.0, largest=0.981, zeros=14),
            OperandRange("alpha", text="1"),
        ),
        "chain": ("aten.mul.Tensor", "aten.sum.default", "aten.div.Tensor"),
        "reached": "the loss",
        "method": "re-run of the captured step on cpu",
    }
    return Located(**{**values, **changes})


def incident(step: int = 412, **changes: Any) -> Incident:
    values: dict[str, Any] = {
        "run": "copper-lynx",
        "step": step,
        "stream": "main",
        "created": "2026-11-20T03:02:39+00:00",
        "symptoms": (symptom(step),),
        "parameters": (
            BadTensor("model.head.weight", (10, 64), "torch.float32", nan=640, inf=0, count=640),
            BadTensor("model.head.bias", (10,), "torch.float32", nan=0, inf=10, count=10),
        ),
        "action": Action(step, "stop", "refused-update", "the gradient is not finite"),
        "finding": Finding(located(), "found in the re-run"),
        "losses": (float("nan"),),
        "loss_origin": "model.forward",
        "micro_batches": 1,
        "batch_note": "all micro-batches of the step were kept",
        "state_note": "weights and optimizer state before the step were kept",
    }
    return Incident(**{**values, **changes})


def write_bundle(path: Path, frozen: Incident | None = None, *, window: Window | None = None, **files: Any) -> Path:
    """A sealed bundle; ``files`` replaces ``environment`` or adds further JSON files by their stem."""
    frozen = frozen or incident()
    path.mkdir(parents=True)
    write_json(path / "incident.json", frozen.to_json())
    for stem, content in {"environment": ENVIRONMENT, **files}.items():
        write_json(path / f"{stem}.json", content)
    if window is None:
        window = window_of(records(60, nan_at=frozen.step, first=frozen.step - 59), TENSORS)
    write_window(path / "window", window)
    (path / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    seal(path)
    return path


def write_run(
    path: Path,
    *,
    steps: Sequence[StepRecord] = (),
    symptoms: Sequence[Symptom] = (),
    incidents: Sequence[Incident] = (),
    facts: dict[str, Any] | None = None,
    **description: Any,
) -> Path:
    """A run folder as the live half leaves it."""
    writer = RunWriter(path, {**DESCRIPTION, "name": path.name, **description})
    segments = SegmentWriter(path / "steps" / "main", stream="main")
    for record in steps:
        segments.append(record, TENSORS)
    segments.close()
    for seen in symptoms:
        writer.raise_symptom(seen)
    for frozen in incidents:
        writer.add_incident(write_bundle(path / "incidents" / f"step-{frozen.step}", frozen), frozen.step)
        writer.add_action(frozen.action)
    for name, value in (FACTS if facts is None else facts).items():
        writer.set_fact(name, value)
    writer.close()
    return path


def bad_run(path: Path, **changes: Any) -> Path:
    """A run of 412 steps whose last one was refused."""
    values: dict[str, Any] = {"steps": records(412, nan_at=412), "symptoms": [symptom()], "incidents": [incident()]}
    return write_run(path, **{**values, **changes})


def quiet_run(path: Path, **changes: Any) -> Path:
    """A run of 1000 steps in which no detector saw anything."""
    facts = {**FACTS, "ended": "finished", "exit_status": 0, "notes": []}
    return write_run(path, **{"steps": records(1000), "facts": facts, **changes})
