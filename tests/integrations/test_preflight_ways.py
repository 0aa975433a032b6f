"""A preflight of scripts in each way of training: how their loss is computed again, and what is found."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pytest

from scripts import call

pytest.importorskip("torch")
pytestmark = [pytest.mark.slow, pytest.mark.long]

LIGHT = (
    "initial-loss,gradient-coverage,loss-misuse,batch-leak,causality,label-alignment,accumulation-equivalence,"
    "order-invariance,eval-determinism"
)

HEAD = """
import random
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(0), random.seed(0)
x = torch.randn(64, 4)
data = TensorDataset(x, (x[:, 0] > 0).long())
net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
"""

PLAIN = """
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for x, y in DataLoader(data, batch_size=8):
    loss = functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

IN_FUNCTIONS = """
def forward_pass(net, batch):
    x, y = batch
    return functional.cross_entropy(net(x), y)


def train_one(net, batch, optimizer, parts=2):
    rows = len(batch[0]) // parts
    for part in range(parts):
        piece = [t[part * rows : (part + 1) * rows] for t in batch]
        loss = forward_pass(net, piece) / parts
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for batch in DataLoader(data, batch_size=8):
    train_one(net, batch, optimizer)
"""

COMPILED = """
net = torch.compile(net, backend="eager")
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
for x, y in DataLoader(data, batch_size=8):
    with torch.autocast("cpu", torch.bfloat16):
        loss = functional.cross_entropy(net(x), y)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""

CLOSURE = """
optimizer = torch.optim.LBFGS(net.parameters(), lr=0.1, max_iter=2)
for x, y in DataLoader(data, batch_size=8):
    def closure():
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        return loss

    optimizer.step(closure)
"""

ACCELERATE = """
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
net, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, batch_size=8))
for x, y in loader:
    with accelerator.accumulate(net):
        loss = functional.cross_entropy(net(x), y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

LIGHTNING = """
import lightning.pytorch as lightning


class Task(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1)), nn.Linear(16, 2)

    def training_step(self, batch, number):
        x, y = batch
        loss = functional.cross_entropy(self.head(self.body(x)), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet).fit(Task(), DataLoader(data, batch_size=8))
"""

TRAINER = """
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Own(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, **more):
        if not OWN:
            return super().compute_loss(model, inputs, return_outputs=return_outputs, **more)
        labels = inputs.pop("labels")
        logits = model(**inputs).logits
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


model = GPT2LMHeadModel(
    GPT2Config(vocab_size=61, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=1)
)
rows = [[random.randrange(2, 61) for _ in range(15)] + [1] for _ in range(64)]
rows = [{"input_ids": ids, "labels": ids, "attention_mask": [1] * 16} for ids in rows]
arguments = TrainingArguments(
    output_dir="out", max_steps=6, per_device_train_batch_size=4, gradient_accumulation_steps=2, report_to=[],
    save_strategy="no", disable_tqdm=True, use_cpu=True,
)
Own(model=model, args=arguments, train_dataset=rows).train()
"""


def preflight(folder: Path, text: str) -> dict[str, Any]:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    offline = {"HF_HUB_OFFLINE": "1"}
    done = call("preflight", "--checks", LIGHT, "--json", path, folder=folder, environment=offline)
    assert done.returncode == 0, done.stdout + done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    assert document["restored"]
    return document


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["status"] for entry in document["checks"]}


LOOPS = {
    "plain": (PLAIN, "lines"),
    "functions": (IN_FUNCTIONS, "lines"),
    "compiled": (COMPILED, "lines"),
    "closure": (CLOSURE, "lines"),
    "accelerate": (ACCELERATE, "lines"),
    "lightning": (LIGHTNING, "Task.training_step"),
}


@pytest.mark.parametrize("way", [pytest.param(way, marks=() if way == "plain" else pytest.mark.long) for way in LOOPS])
def test_the_loss_of_a_loop_is_computed_again(tmp_path: Path, way: str) -> None:
    text, source = LOOPS[way]
    for package in ("accelerate", "lightning"):
        if package in text:
            pytest.importorskip(package)
    document = preflight(tmp_path, HEAD + text)
    found = statuses(document)
    assert source in document["loss"]
    assert document["task"] == "classification"
    for name in ("initial-loss", "gradient-coverage", "loss-misuse", "batch-leak", "order-invariance"):
        assert found[name] == "pass", [entry for entry in document["checks"] if entry["name"] == name]
    first = next(entry for entry in document["checks"] if entry["name"] == "initial-loss")
    assert first["numbers"]["loss"] == pytest.approx(0.7, abs=0.15), "whatever the accumulation"
    accumulates = way in ("functions", "accelerate")
    assert found["accumulation-equivalence"] == ("pass" if accumulates else "not-run")


@pytest.mark.long
@pytest.mark.parametrize(("own", "source"), [(False, "GPT2LMHeadModel, which returns its loss"), (True, "trainer.py")])
def test_the_loss_of_a_trainer_is_computed_again(tmp_path: Path, own: bool, source: str) -> None:
    pytest.importorskip("transformers")
    document = preflight(tmp_path, HEAD + TRAINER.replace("not OWN", f"not {own}"))
    found = statuses(document)
    assert source in document["loss"]
    assert document["task"] == "causal-lm"
    assert {name for name, status in found.items() if status == "pass"} >= {
        *("initial-loss", "gradient-coverage", "loss-misuse", "batch-leak", "causality", "label-alignment"),
        *("accumulation-equivalence", "order-invariance"),
    }, document
