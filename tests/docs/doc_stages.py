"""The folders in which the blocks of a page run: each stage prepares an empty one."""

from __future__ import annotations

import json
import math
import shutil
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path

from doc_blocks import ROOT

Run = Callable[[str, int], object]
"""Runs a command in the folder; it must end with this status."""

Stage = Callable[[Path, str, Run], None]

LOOP = """
    import torch

    torch.manual_seed(0)
    inputs = torch.randn(640, 8)
    targets = inputs.sum(dim=1, keepdim=True) + 0.1 * torch.randn(640, 1)
    model = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
"""
"""A small regression. `train.py` of the stage `script` trains it, and blocks of Python use its names."""

TRAIN = """
    for step in range(60):
        at = step % 20 * 32
        loss = (model(inputs[at : at + 32]) - targets[at : at + 32]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

NAMES = """
    import steadytrain
    from torch.nn.functional import mse_loss

    rate = 0.01
    batches = loader = list(zip(inputs.split(32), targets.split(32)))


    def train(_loader=None):
        for batch, target in batches:
            loss = torch.nn.functional.mse_loss(model(batch), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""

MASKED = """
    keep = torch.ones(640, 1)
    keep[320:352] = 0
    for step in range(60):
        at = step % 20 * 32
        error = (model(inputs[at : at + 32]) - targets[at : at + 32]).square()
        loss = (error * keep[at : at + 32]).sum() / keep[at : at + 32].sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
"""Step 11 is a mean over nothing."""


INFINITE = """
    for step in range(60):
        at = step % 20 * 32
        loss = (model(inputs[at : at + 32]) - targets[at : at + 32]).square().mean()
        if step >= 30:
            loss = loss + torch.zeros(1).log().sum()
        if not torch.isfinite(loss):
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
"""From step 31 on the loss is -Inf, and the script skips the batch."""


PLUGIN_NAMES = """
    from steadytrain.checks.subject.model_check import passed
    from steadytrain.diagnosis.cause import CERTAIN, STRONG, Cause, Intervention, Signature
    from steadytrain.diagnosis.signs import symptom
    from steadytrain.diagnosis.trial_effects import like
    from steadytrain.experiments.specs import Change
    from steadytrain.experiments.trial_rows import OneChange
"""
"""What the examples of plug-ins use and the package of the tests does not."""


def prepare(folder: Path, stage: str, run: Run) -> None:
    """Prepare ``folder``: the first word is the stage, the rest its argument. ``run`` runs a command there."""
    name, _, argument = stage.partition(" ")
    STAGES[name](folder, argument.strip(), run)


def _write(path: Path, *parts: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(textwrap.dedent(part).strip("\n") + "\n" for part in parts), encoding="utf-8")


def _empty(folder: Path, argument: str, run: Run) -> None:
    """Nothing is there."""


def _script(folder: Path, argument: str, run: Run) -> None:
    _write(folder / "train.py", LOOP, TRAIN)


def _broken(folder: Path, argument: str, run: Run) -> None:
    _write(folder / "train.py", LOOP, MASKED)


def _nightly(folder: Path, argument: str, run: Run) -> None:
    _write(folder / "train.py", LOOP, INFINITE)
    run("steadytrain run --name nightly train.py", 0)


def _recorded(folder: Path, argument: str, run: Run) -> None:
    _broken(folder, argument, run)
    run(f"steadytrain run --name {argument} train.py", 70)


def _runs(folder: Path, argument: str, run: Run) -> None:
    _script(folder, argument, run)
    for name in argument.split():
        run(f"steadytrain run --name {name} train.py", 0)


def _zoo(folder: Path, argument: str, run: Run) -> None:
    shutil.copy(ROOT / "zoo" / argument, folder)


def _names(folder: Path, argument: str, run: Run) -> None:
    _write(folder / "prelude.py", LOOP, NAMES)


def _plugins(folder: Path, argument: str, run: Run) -> None:
    """The imports that the examples of plug-ins leave out are those of a package that has one of each kind."""
    sources = sorted((ROOT / "tests" / "fixtures" / "outside_package" / "outsider").glob("*.py"))
    lines = [line for source in sources for line in source.read_text(encoding="utf-8").splitlines()]
    imports = {line for line in lines if line.startswith(("import ", "from ")) and "__future__" not in line}
    imports.add("from dataclasses import dataclass, field")
    _write(folder / "prelude.py", "\n".join(sorted(imports)), PLUGIN_NAMES)


def _logs(folder: Path, argument: str, run: Run) -> None:
    steps = range(600)
    losses = [4.5 / (1 + 0.05 * step) + 0.02 * math.sin(1.7 * step) for step in steps]
    rows = [{"step": step + 1, "loss": losses[step], "grad_norm": 1.0, "learning_rate": 1e-4} for step in steps]
    spoiled = [row | {"loss": 0.0, "grad_norm": math.nan} if step >= 338 else row for step, row in enumerate(rows)]
    for name, history in (("trainer_state.json", rows), ("checkpoint-600/trainer_state.json", spoiled)):
        _write(folder / name, json.dumps({"global_step": 600, "log_history": history}))
    lines = [f"step {row['step']} | loss {row['loss']:.4f} | lr 1.0e-04 | norm 0.5" for row in rows]
    for name in ("train.log", "healthy.log", "runs/first.log"):
        _write(folder / name, "\n".join(lines))
    _write(folder / "other.csv", "\n".join(["step,loss", *(f"{row['step']},{row['loss']}" for row in rows)]))


def _data(folder: Path, argument: str, run: Run) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    rows = [json.dumps({"text": f"row {row} of the data says {row * 7919 % 1013} words"}) for row in range(400)]
    for name, part in (("train.jsonl", rows[:300]), ("shards/a.jsonl", rows[:150]), ("shards/b.jsonl", rows[150:300])):
        _write(folder / name, "\n".join(part))
    _write(folder / "test.jsonl", "\n".join(rows[300:]))
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(rows, trainers.BpeTrainer(special_tokens=["[UNK]"], show_progress=False))
    tokenizer.save(str(folder / "tokenizer.json"))
    tokens = ((place * 7919 % 251, place % 97) for place in range(20000))
    (folder / "train.bin").write_bytes(bytes(byte for token in tokens for byte in token))
    rows_of_mine = "[{'x': [row, row + 1], 'label': row % 2} for row in range(200)]"
    _write(folder / "my_project" / "data.py", f"train_set = {rows_of_mine}")


STAGES: Mapping[str, Stage] = {
    "empty": _empty,
    "script": _script,
    "broken": _broken,
    "nightly": _nightly,
    "recorded": _recorded,
    "runs": _runs,
    "zoo": _zoo,
    "names": _names,
    "plugins": _plugins,
    "logs": _logs,
    "data": _data,
}
"""By name; ``doc_blocks`` says how a page names one."""
