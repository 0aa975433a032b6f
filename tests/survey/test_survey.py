"""What a survey sees in scripts with planted oddities, and that it changes nothing on its way."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from scripts import run_script
from steadytrain.core.errors import UsageError
from steadytrain.experiments.facts import FACTS, facts_path, read_facts
from steadytrain.replay.moved_files import Moved
from steadytrain.survey.launch import CannotSurveyError, survey

DOCS = Path(__file__).parents[2] / "docs" / "survey.md"

ODD = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(9, 16), nn.Linear(16, 5)
        self.frozen, self.unused = nn.Linear(16, 16), nn.Linear(16, 16)
        self.frozen.requires_grad_(False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        x = Double.apply(self.first(x))
        return self.second(self.drop(self.frozen(x))).softmax(1)


model = Model()
model.drop.eval()
shift = nn.Parameter(torch.zeros(1, 2))
held = [p for name, p in model.named_parameters() if name != "second.bias" and p.requires_grad]
optimizer = torch.optim.AdamW([*held, shift], lr=1e-3, weight_decay=0.1)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=40)
for step in range(1, 21):
    labels = torch.randint(5, (32,))
    x = torch.cat([torch.randn(32, 8), labels[:, None].float()], 1)
    loss = F.cross_entropy(model(x), labels) / 2 + 0.01 * shift.square().sum()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1e-3)
    optimizer.step()
    for _ in range(4):
        scheduler.step()
    if step == 9:
        optimizer.zero_grad()
"""

SOUND = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
tokens = nn.Embedding(20, 16)
model = nn.Sequential(tokens, nn.GRU(16, 16, batch_first=True))
head = nn.Linear(16, 20)
optimizer = torch.optim.Adam([*model.parameters(), *head.parameters()], lr=1e-3)
for step in range(1, 31):
    text = torch.randint(20, (4, 9))
    loss = F.cross_entropy(head(model(text[:, :-1])[0]).flatten(0, 1), text[:, 1:].flatten())
    if step == 25:
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

TWO = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
body = nn.Sequential(nn.Linear(8, 16), nn.ReLU())


def train(head, classes, steps, bad=0):
    optimizer = torch.optim.Adam([*body.parameters(), *head.parameters()], lr=1e-3)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 100)
    for step in range(1, steps + 1):
        loss = F.cross_entropy(head(body(torch.randn(16, 8))), torch.randint(classes, (16,)))
        optimizer.zero_grad()
        (loss * float("nan") if step == bad else loss).backward()
        optimizer.step()
        schedule.step()


train(nn.Linear(16, 10), 10, 30)
train(nn.Linear(16, 4), 4, 30, bad=20)
"""


def recorded(folder: Path, script: str) -> Path:
    """The run folder of ``script``, run under watch."""
    outcome = run_script(folder, script, "--policy", "stop", "--keep-rewind", "--to", "none")
    assert outcome.status in (0, 70), outcome.err
    return outcome.run_dir


def surveyed(source: Path) -> dict[str, Any]:
    return survey(source, moved=Moved.parse("-"), wait_s=120, lead_s=60)


@pytest.mark.slow
def test_oddities_are_seen(tmp_path: Path) -> None:
    run = recorded(tmp_path, ODD)
    facts = surveyed(run)
    assert facts["survey_notes"] == []
    assert facts["replay_exact"] is True
    assert facts["parameters_frozen"] == ["frozen.bias", "frozen.weight"]
    assert facts["parameters_not_in_optimizer"] == ["second.bias"]
    assert facts["optimizer_strangers"] == 0
    assert facts["parameters_without_gradient"] == ["unused.bias", "unused.weight"]
    assert facts["modules_not_called"] == ["unused"]
    assert facts["modules_in_eval"] == ["drop"]
    assert facts["custom_gradient_error"]["Double"] == pytest.approx(0.5, abs=1e-3)
    assert [line.startswith("train.py:") for line in facts["probabilities_as_logits"]] == [True]
    assert facts["labels_leaked"] == [{"input": 8, "share": 1.0}]
    assert facts["gradients_carried_over"] is True
    assert facts["scheduler_steps_per_step"] == pytest.approx(4.0, abs=0.3)
    assert facts["scheduler_planned"] == 40
    assert facts["clipped"] is True
    assert facts["clip_coefficient"] < 1
    assert facts["loss_divisor"] == 2
    assert facts["weight_decay_of_norms"] == ["first.bias", "unused.bias"]
    assert facts["uniform_loss"] == pytest.approx(1.609, abs=1e-3)
    assert read_facts(run) == facts


@pytest.mark.long
@pytest.mark.slow
def test_a_sound_script_shows_nothing_odd(tmp_path: Path) -> None:
    run = recorded(tmp_path, SOUND)
    (bundle,) = [path for path in (run / "incidents").iterdir() if (path / "incident.json").is_file()]
    facts = surveyed(bundle)
    assert facts["survey_notes"] == []
    assert facts["replay_exact"] is True
    assert facts["surveyed_last_step"] == 25
    empty = ("parameters_without_gradient", "parameters_not_in_optimizer", "probabilities_as_logits", "broadcast")
    assert [facts[name] for name in empty] == [[], [], [], []]
    assert facts["gradients_carried_over"] is False
    assert facts["label_shift_trained"] == 1
    assert facts["tokens_out_of_range"] == 0
    assert facts["zero_grad_calls"] == 1.0
    assert facts["state_step_lag"] == 0
    assert facts_path(bundle).parent.parent.name == "trials"
    assert set(facts) <= set(FACTS)


@pytest.mark.slow
def test_a_training_before_this_one_is_left_out(tmp_path: Path) -> None:
    run = recorded(tmp_path, TWO)
    (bundle,) = [path for path in (run / "incidents").iterdir() if (path / "incident.json").is_file()]
    facts = surveyed(bundle)
    assert (facts["backwards_per_step"], facts["zero_grad_calls"]) == (1.0, 1.0)
    assert facts["scheduler_steps_per_step"] == pytest.approx(1.0, abs=0.1)
    assert (facts["classes"], facts["label_largest"]) == (4, 3)
    assert facts["parameters_not_in_optimizer"] == []


@pytest.mark.slow
def test_a_script_that_cannot_be_surveyed_says_why(tmp_path: Path) -> None:
    run = recorded(tmp_path, SOUND)
    script = tmp_path / "train.py"
    script.write_text("import torch\nraise SystemExit('no data today')\n", encoding="utf-8")
    with pytest.raises(CannotSurveyError, match="before its first update"):
        surveyed(run)
    os.remove(script)
    with pytest.raises(UsageError, match="the script is gone"):
        surveyed(run)


def test_every_fact_is_documented() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert [name for name in FACTS if f"| `{name}` |" not in text] == []


def test_facts_that_are_cut_off_or_of_another_kind_are_none(tmp_path: Path) -> None:
    place = facts_path(tmp_path)
    assert read_facts(tmp_path) is None
    place.parent.mkdir(parents=True)
    for text in ("", "{", "[]", json.dumps({"schema": "another/1", "facts": {}})):
        place.write_text(text, encoding="utf-8")
        assert read_facts(tmp_path) is None
    place.write_text(json.dumps({"schema": "steadytrain.facts/1", "facts": {"ranks": 1, "unheard_of": 2}}), "utf-8")
    assert read_facts(tmp_path) == {"ranks": 1}
