"""Runs recorded in folders, written here value by value: where two of them part, and what they were set to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steadytrain.cli.main import commands
from steadytrain.compare.circumstances import differing, seed_of
from steadytrain.compare.first_difference import agreement
from steadytrain.compare.run_groups import compare_groups, compare_runs
from steadytrain.core.errors import UsageError
from steadytrain.core.model import GRADIENT_ABSENT, Reading, Series
from steadytrain.report.comparison_page import FRAME, lines, page
from steadytrain.storage.run_folder import Run, RunWriter, open_run
from steadytrain.storage.segments import SegmentWriter, StepRecord
from steadytrain.storage.tables import TableWriter

TENSORS = ("first.weight", "second.weight")
STEPS = 20


def run(
    folder: Path,
    name: str,
    *,
    steps: int = STEPS,
    argv: tuple[str, ...] = ("train.py", "--seed", "0", "--lr=0.1"),
    facts: dict[str, Any] | None = None,
    loss: float = 0.0,
    edit: dict[tuple[int, str], float] | None = None,
) -> Run:
    """A run whose values are a formula of the step, but for those of ``edit``: (step, signal or tensor) -> value."""
    edit = edit or {}
    writer = RunWriter(folder / name, {"name": name, "argv": list(argv), "python": "3.11.7", "started": name})
    for fact, value in (facts or {}).items():
        writer.set_fact(fact, value)
    writer.close()
    scalars = SegmentWriter(folder / name / "steps" / "main", stream="main")
    gradients = TableWriter(folder / name / "tables" / "main", "gradients")
    weights = TableWriter(folder / name / "tables" / "main", "tensors")
    for step in range(1, steps + 1):
        values = {"loss": 5 / step + loss, "gradient_norm": 2 / step, "learning_rate": 0.1, "samples": 8.0}
        values |= {signal: value for (at, signal), value in edit.items() if at == step and signal in values}
        scalars.append(StepRecord(step, 1.7e9 + step, {**values, "step_s": 0.1 * len(name)}, np.zeros(0, "f4")), ())
        norms = [edit.get((step, tensor), (at + 1) / step) for at, tensor in enumerate(TENSORS)]
        gradients.append(step, 0.0, Reading("gradients", TENSORS, ("norm",), np.array(norms, "f4")[:, None]))
        if step % 5 == 0:
            rows = [[edit.get((step, f"weight of {tensor}"), 1.0), float(len(name))] for tensor in TENSORS]
            reading = Reading("tensors", TENSORS, ("weight_norm", "update_norm"), np.array(rows, "f4"))
            weights.append(step, 0.0, reading)
    for table in (scalars, gradients, weights):
        table.close()
    return open_run(folder / name)


def test_runs_that_are_the_same_are_equal_whatever_their_clocks_and_samples_say(tmp_path: Path) -> None:
    found = agreement(run(tmp_path, "one"), run(tmp_path, "other"))
    assert (found.first, found.shared_steps, found.last_equal_step) == (None, STEPS, STEPS)


def test_a_nan_equals_the_same_nan(tmp_path: Path) -> None:
    edit = {(7, "loss"): float("nan"), (7, "first.weight"): float("nan")}
    assert agreement(run(tmp_path, "one", edit=edit), run(tmp_path, "other", edit=edit)).first is None


def test_a_shorter_run_is_equal_as_far_as_it_goes(tmp_path: Path) -> None:
    found = agreement(run(tmp_path, "one"), run(tmp_path, "other", steps=9))
    assert (found.first, found.shared_steps) == (None, 9)
    assert any("different steps" in note for note in found.notes)


@pytest.mark.parametrize(
    ("edit", "step", "phase", "tensor"),
    [
        ({(8, "loss"): np.nextafter(np.float32(5 / 8), np.float32(9)).item()}, 8, "loss", None),
        ({(8, "second.weight"): 0.3, (9, "loss"): 1.0}, 8, "backward", "second.weight"),
        ({(8, "second.weight"): 0.3, (8, "loss"): 1.0}, 8, "loss", None),
        ({(8, "second.weight"): GRADIENT_ABSENT}, 8, "backward", "second.weight"),
        ({(8, "second.weight"): float("nan")}, 8, "backward", "second.weight"),
        ({(8, "gradient_norm"): 0.5, (8, "first.weight"): 0.5}, 8, "backward", "first.weight"),
        ({(3, "learning_rate"): 0.2, (3, "first.weight"): 7.0}, 3, "backward", "first.weight"),
        ({(3, "learning_rate"): 0.2}, 3, "settings", None),
        ({(3, "samples"): 4.0, (3, "loss"): 7.0}, 3, "batch", None),
        ({(10, "weight of second.weight"): 2.0, (11, "loss"): 2.0}, 10, "update", "second.weight"),
    ],
)
def test_the_first_step_phase_and_tensor(
    tmp_path: Path, edit: dict[tuple[int, str], float], step: int, phase: str, tensor: str | None
) -> None:
    first = agreement(run(tmp_path, "one"), run(tmp_path, "other", edit=edit)).first
    assert first is not None
    assert (first.step, first.phase, first.tensor) == (step, phase, tensor)


def test_entries_that_differ_what_a_person_sets_first(tmp_path: Path) -> None:
    facts = {"machine": {"host": {"cores": 2}}, "versions": {"torch": "2.6.0", "numpy": "2.0"}, "notes": ["x"]}
    left = run(tmp_path, "one", argv=("a.py", "--lr", "0.1", "--seed=0", "-q"), facts=facts)
    facts = {"machine": {"host": {"cores": 8}}, "versions": {"torch": "2.7.0", "numpy": "2.0"}, "notes": ["y"]}
    right = run(tmp_path, "other", argv=("a.py", "--lr=0.2", "--seed", "1"), facts=facts)
    entries = {entry.name: (entry.left, entry.right) for entry in differing(left, right)}
    assert entries == {
        "argv.lr": ("0.1", "0.2"),
        "argv.seed": ("0", "1"),
        "argv.q": ("given", None),
        "versions.torch": ("2.6.0", "2.7.0"),
        "machine.host.cores": ("2", "8"),
    }
    assert list(entries)[-1] == "machine.host.cores"
    assert (seed_of(left), seed_of(right)) == ("0", "1")


def test_groups_by_their_seeds(tmp_path: Path) -> None:
    def group(name: str, lr: str, shift: float) -> list[Run]:
        return [
            run(tmp_path, f"{name}-{seed}", argv=("a.py", f"--seed={seed}", f"--lr={lr}"), loss=seed + shift)
            for seed in range(4)
        ]

    groups = {"old": group("old", "0.1", 0.0), "new": group("new", "0.2", -0.5)}
    found = compare_groups(groups)
    (noise,) = found.groups
    assert (found.verdict, noise.method, noise.difference) == ("differ", "paired", pytest.approx(-0.5))
    assert [(entry.name, entry.left, entry.right) for entry in found.entries] == [("argv.lr", "0.1", "0.2")]
    assert found.tail == (11, 20)
    text = page(found, version="1")
    assert text.count("<circle") == 8
    assert "<script" not in text
    assert "argv.lr" in text


def test_a_run_that_diverged_is_left_out_and_told(tmp_path: Path) -> None:
    def group(name: str) -> list[Run]:
        return [run(tmp_path, f"{name}-{seed}", loss=seed) for seed in range(3)]

    spoiled = [*group("b")[:2], run(tmp_path, "spoiled", edit={(20, "loss"): float("nan")})]
    found = compare_groups({"a": group("a"), "b": spoiled})
    assert found.verdict == "cannot-tell"
    assert any("spoiled" in note for note in found.notes)


def test_a_page_makes_what_comes_from_a_run_harmless(tmp_path: Path) -> None:
    left = run(tmp_path, "one", argv=("a.py", "--name", "<script>alert(1)</script>"))
    right = run(tmp_path, "other", argv=("a.py", "--name", "b"), edit={(8, "loss"): float("inf"), (9, "loss"): 3.0})
    text = page(compare_runs([left, right]), version="1")
    assert "<script" not in text
    assert "&lt;script&gt;" in text


def command(*arguments: str) -> int:
    status = commands.main(["compare", *arguments], prog_name="steadytrain", standalone_mode=False)
    return status if isinstance(status, int) else 0


def test_statuses_and_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "a")
    run(tmp_path, "b")
    run(tmp_path, "c", edit={(8, "second.weight"): 0.3})
    where = ("--runs-dir", str(tmp_path))
    assert command("a", "b", *where) == 0
    assert "equal in all 20 shared steps" in capsys.readouterr().out
    assert command("a", "b", "c", *where, "--json") == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["schema"], document["verdict"]) == ("steadytrain.compare/1", "differ")
    assert [pair["equal"] for pair in document["pairs"]] == [True, False]
    assert document["pairs"][1]["first_difference"]["tensor"] == "second.weight"
    assert document["pairs"][1]["last_equal_step"] == 7
    assert command("--group", "x=a", "--group", "y=b,c", *where, "--html", str(tmp_path / "page.html")) == 125
    assert (tmp_path / "page.html").read_text().startswith("<!DOCTYPE html>")


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("a",), "at least two runs"),
        (("a", "a"), "at least two runs"),
        (("a", "nothing"), "no such run"),
        (("a", "no*"), "no run matches"),
        (("a", "--group", "x=a"), "not both"),
        (("--group", "x=a"), "at least two"),
        (("--group", "x=a", "--group", "y=a"), "belongs to one"),
        (("--group", "x"), "NAME=RUN"),
        (("a", "empty"), "no recorded steps"),
        (("a", "b", "--html", "no/such/folder/x.html"), "no such folder to write"),
    ],
)
def test_bad_use_is_one_line(tmp_path: Path, arguments: tuple[str, ...], what: str) -> None:
    run(tmp_path, "a")
    run(tmp_path, "b")
    RunWriter(tmp_path / "empty", {"name": "empty"}).close()
    with pytest.raises(UsageError, match=what):
        command(*arguments, "--runs-dir", str(tmp_path))


def test_comparing_needs_no_torch() -> None:
    code = "import sys, steadytrain.cli.compare, steadytrain.report.comparison_page; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_axis_is_labelled_with_round_values() -> None:
    grown = Series(np.arange(3), np.array([0.1191, 1e5, 7.27e12]))
    drawn = lines([(grown, "red")], "loss", [], logarithmic=True)
    labels = re.findall(rf'class="tick" x="{FRAME.left - 6}"[^>]*>([^<]*)<', drawn)
    assert len(labels) >= 3
    assert {float(label) for label in labels} <= {10.0**power for power in range(13)}
    equal = Series(np.arange(3), np.full(3, 1.23))
    assert ">1.23</text>" in lines([(equal, "red")], "loss", [], logarithmic=True)
