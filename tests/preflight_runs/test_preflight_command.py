"""``steadytrain preflight`` on whole scripts: what it says, what it leaves behind, and what it does not touch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from xml.etree import ElementTree

import pytest

from scripts import bare, command, finished

pytest.importorskip("torch")
pytestmark = pytest.mark.slow

LIGHT = "initial-loss,gradient-coverage,loss-misuse,batch-leak,eval-determinism"

TRAINING = """
import hashlib, random, sys
import numpy as np
import torch
from torch import nn
from torch.nn import functional

torch.set_num_threads(1)
torch.manual_seed(0), random.seed(0), np.random.seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.drop = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Dropout(0.2)
        self.head = nn.Linear(4 * 36, 3)
        self.calls, self.sizes = 0, []

    def forward(self, x):
        self.calls += 1
        self.sizes.append(len(x))
        return self.head(self.drop(torch.relu(self.norm(self.conv(x))).flatten(1)))


net = Net()
FAULT
optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 5))
data = torch.utils.data.TensorDataset(torch.randn(48, 1, 6, 6), torch.randint(0, 3, (48,)))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
diary = hashlib.sha256()


def note(tensor):
    diary.update(tensor.detach().contiguous().numpy().tobytes())


for epoch in range(2):
    for x, y in loader:
        x = x + 0.01 * torch.randn_like(x) * random.random() * float(np.random.rand())
        loss = functional.cross_entropy(net(x), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        note(x), note(loss)
for tensor in (*net.state_dict().values(), torch.get_rng_state()):
    note(tensor)
for state in optimizer.state.values():
    for tensor in state.values():
        note(tensor)
print("DIARY", diary.hexdigest(), net.calls, len(net.sizes), random.random(), np.random.rand())
"""


def script(folder: Path, text: str = TRAINING, *, fault: str = "") -> Path:
    path = folder / "train.py"
    path.write_text(textwrap.dedent(text).replace("FAULT", fault), encoding="utf-8")
    return path


def run(*arguments: object, folder: Path, interpreter: str | None = None) -> subprocess.CompletedProcess[str]:
    line = command(*arguments)
    return finished([interpreter or line[0], *line[1:]], folder=folder)


def diary(text: str) -> str:
    found = re.search(r"^DIARY .*$", text, re.MULTILINE)
    assert found is not None, text
    return found[0]


def test_a_run_after_a_preflight_is_the_same_to_the_last_bit(tmp_path: Path) -> None:
    path = script(tmp_path)
    plain = finished(bare(path), folder=tmp_path)
    assert plain.returncode == 0, plain.stderr
    both = run("preflight", "--then-run", "--name", "after", path, folder=tmp_path)
    assert both.returncode == 0, both.stderr
    assert diary(both.stdout) == diary(plain.stdout)
    assert "12 steps seen" in both.stderr
    document = json.loads((tmp_path / "steadytrain-runs" / "after" / "preflight.json").read_text(encoding="utf-8"))
    assert document["restored"]
    assert document["counts"]["pass"] >= 10
    assert document["counts"]["fail"] == 0, document


def test_it_ends_before_the_script_does_and_says_what_it_found(tmp_path: Path) -> None:
    done = run("preflight", "--checks", LIGHT, "--json", script(tmp_path), folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["schema"] == "steadytrain.preflight/1"
    assert {entry["name"] for entry in document["checks"]} == set(LIGHT.split(","))
    assert (document["task"], document["model"], document["steps"]) == ("classification", "Net", 4)
    assert "DIARY" not in done.stdout + done.stderr
    assert not (tmp_path / "steadytrain-runs").exists()


def test_a_fault_ends_with_status_one_and_is_in_every_file(tmp_path: Path) -> None:
    path = script(tmp_path, fault="net.head.weight.requires_grad_(False), net.head.bias.requires_grad_(False)\n")
    path.write_text(path.read_text(encoding="utf-8").replace("net(x), y", "net(x).softmax(-1), y"), encoding="utf-8")
    files = ["--junit", "a.xml", "--sarif", "a.sarif", "--baseline", "known.json"]
    done = run("preflight", "--checks", LIGHT, *files, path, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert re.search(r"FAIL +loss-misuse", done.stdout)
    assert "softmax of it again" in " ".join(done.stdout.split())
    assert "next" in done.stdout
    suite = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("5", "1")
    (result,) = json.loads((tmp_path / "a.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("loss-misuse", "error")
    again = run("preflight", "--checks", LIGHT, "--baseline", "known.json", path, folder=tmp_path)
    assert again.returncode == 0
    assert re.search(r"known +loss-misuse", again.stdout)


def test_a_failed_check_keeps_the_run_from_beginning(tmp_path: Path) -> None:
    path = script(tmp_path)
    path.write_text(path.read_text(encoding="utf-8").replace("net(x), y", "net(x).softmax(-1), y"), encoding="utf-8")
    done = run("preflight", "--then-run", "--checks", "loss-misuse", path, folder=tmp_path)
    assert done.returncode == 1, done.stderr
    assert "DIARY" not in done.stdout


@pytest.mark.parametrize(
    ("text", "words"),
    [
        pytest.param("import torch\nprint(torch.ones(2).sum())\n", "without a step", id="never-trains"),
        pytest.param("print('no torch here')\n", "without importing torch", id="no-torch"),
        pytest.param("import torch\nraise ValueError('no data')\n", "ended by ValueError", id="crashes"),
        pytest.param("import sys, torch\nsys.exit(3)\n", "ended by SystemExit", id="exits"),
        pytest.param(
            "import torch\nw = torch.zeros(3, requires_grad=True)\no = torch.optim.SGD([w], lr=0.1)\n"
            "(w - 1).square().sum().backward()\no.step()\n",
            "no torch.nn.Module holds",
            id="no-module",
        ),
    ],
)
def test_a_script_that_gives_nothing_to_check_is_told_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    fresh = sys.executable if words == "without importing torch" else None
    done = run("preflight", script(tmp_path, text), folder=tmp_path, interpreter=fresh)
    assert done.returncode == 2
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("steadytrain: ")
    assert words in last
    if "ValueError" in words:
        assert "ValueError: no data" in done.stderr
        assert "steadytrain/" not in done.stderr


def test_checks_that_do_not_apply_are_named_with_status_two(tmp_path: Path) -> None:
    done = run("preflight", "--checks", "causality,padding-invariance", script(tmp_path), folder=tmp_path)
    assert done.returncode == 2
    assert "none of the checks could be run" in done.stderr
    assert "the task is classification" in done.stdout


STACKED = """
import torch
from torch import nn

torch.manual_seed(0)
table, net = nn.Embedding(9, 8), nn.Linear(8, 9)
model = nn.Sequential(table, net)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(6):
    rows = [(torch.randint(9, (16,)), torch.rand(16)) for _ in range(32)]
    tokens, weights = (torch.stack(parts) for parts in zip(*rows))
    losses = nn.functional.cross_entropy(model(tokens[:, :-1]).transpose(1, 2), tokens[:, 1:], reduction="none")
    weights = weights[:, 1:]
    loss = (losses * weights).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_samples_that_the_script_stacks_are_not_taken_for_rows(tmp_path: Path) -> None:
    """They are as long as the check takes rows, so their tokens would be turned round in their place."""
    path = script(tmp_path, STACKED)
    done = run("preflight", "--checks", "order-invariance,eval-determinism", path, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "make the batch anew" in " ".join(done.stdout.split())


def test_a_name_that_is_no_check_is_told_before_anything_is_run(tmp_path: Path) -> None:
    done = run("preflight", "--checks", "causalty", script(tmp_path, "raise SystemExit(9)\n"), folder=tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith("steadytrain: 'causalty': no such check; did you mean causality")
