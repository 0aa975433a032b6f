"""The line that a symptom names: found in the script's modules, recorded with its code, and shown where it helps."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
from click.testing import CliRunner

from scripts import run_script
from steadytrain.cli.query import command as query
from steadytrain.cli.show import command as show
from steadytrain.core.model import ScriptLine
from steadytrain.detection.named_lines import named_line
from steadytrain.grouping.stories import capital
from steadytrain.report import build, html

TARGET = """
import torch
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
gamma = 0.9
for step in range(60):
    state, next_state = torch.randn(16, 4), torch.randn(16, 4)
    action, reward = torch.randint(0, 2, (16, 1)), torch.randn(16)
    q = net(state).gather(1, action).squeeze(1)
    target = reward + gamma * net(next_state).max(1).values  # {comment}
    loss = torch.nn.functional.mse_loss(q, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def load(monkeypatch: pytest.MonkeyPatch, name: str, file: Path, source: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    module = ModuleType(name)
    module.__file__ = str(file)
    monkeypatch.setitem(sys.modules, name, module)


def test_a_line_is_found_by_the_name_of_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "losses_of_mine.py"
    load(monkeypatch, "losses_of_mine", file, "a = 1\n\n    b = a.mean()\n")
    assert named_line("losses_of_mine.py:3 does it wrong") == ScriptLine(str(file), 3, "b = a.mean()")
    assert named_line("the loss of losses_of_mine.py:3, and other.py:1") == ScriptLine(str(file), 3, "b = a.mean()")


@pytest.mark.parametrize(
    "message",
    [
        "the loss rose from 2 to 3",
        "unknown_file_of_nobody.py:3 does it wrong",
        "losses_of_mine.py:2 is empty",
        "losses_of_mine.py:4 is past the end",
        "losses_of_mine.py:99999999 is no line",
        "x/losses_of_mine.py:3 is a path",
        "losses_of_mine.py names no line",
    ],
)
def test_what_names_no_line_has_none(message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load(monkeypatch, "losses_of_mine", tmp_path / "losses_of_mine.py", "a = 1\n\n    b = a.mean()\n")
    assert named_line(message) is None


def test_a_name_of_two_files_and_one_of_a_package_are_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(monkeypatch, "twice", tmp_path / "a" / "twice_there.py", "a = 1\n")
    load(monkeypatch, "twice_too", tmp_path / "b" / "twice_there.py", "b = 1\n")
    load(monkeypatch, "package", tmp_path / "site-packages" / "installed_one.py", "c = 1\n")
    assert named_line("twice_there.py:1 is it") is None
    assert named_line("installed_one.py:1 is it") is None


def test_the_line_is_recorded_and_shown_with_what_usually_mends_it(tmp_path: Path) -> None:
    ended = run_script(tmp_path, TARGET.format(comment="the next value"), "--name", "run")
    symptom = next(one for one in ended.run.symptoms if one.name == "live-target")
    assert symptom.at is not None
    assert Path(symptom.at.file).name in symptom.message
    assert symptom.at.code.startswith("target = reward + gamma")
    shown = CliRunner().invoke(show, [str(ended.run_dir)], catch_exceptions=False).output
    assert f"{symptom.at.place}\n" in shown
    assert shown.count("carries the gradient") == 1  # the message appears once
    first = build.from_run(ended.run).first
    assert first is not None
    assert first.where is not None
    assert first.fix is not None
    assert first.where.line == f"{symptom.at.file}:{symptom.at.line}"
    assert [line.text for line in first.where.source if line.marked] == [symptom.at.code]
    assert len(first.where.source) == 5
    assert "no_grad" in first.fix.what
    assert not first.fix.works
    assert "not tried" in first.fix.effect
    assert "no single operation" not in html.page(build.from_run(ended.run), None, version="0")
    asked = ["SELECT file, line, code FROM symptoms WHERE name = 'live-target'", "--json"]
    answer = CliRunner().invoke(query, [str(ended.run_dir), *asked], catch_exceptions=False).output
    assert json.loads(answer)["rows"][0][1:] == [symptom.at.line, symptom.at.code]


def test_a_secret_in_the_line_is_not_recorded(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"
    ended = run_script(tmp_path, TARGET.format(comment=secret))
    symptom = next(one for one in ended.run.symptoms if one.name == "live-target")
    assert symptom.at is not None
    assert symptom.at.code.startswith("target = reward")
    assert secret not in json.dumps(symptom.to_json())
    assert secret not in html.page(build.from_run(ended.run), None, version="0")


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("train.py:17 makes a target", "train.py:17 makes a target"),
        ("fc1.weight never moved", "fc1.weight never moved"),
        ("the loss rose", "The loss rose"),
        ("loss: it rose", "Loss: it rose"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_and_a_name_stays(text: str, begun: str) -> None:
    assert capital(text) == begun
