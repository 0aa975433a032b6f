"""JSON Lines and its relatives."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from reading import loss_at, metric, read, read_one, signal, text

from steadytrain.core.errors import UsageError


def test_trainer_log_of_llama_factory(tmp_path: Path) -> None:
    lines = []
    for step in range(5, 505, 5):
        lines.append(
            {"current_steps": step, "total_steps": 500, "loss": loss_at(step), "lr": 1e-5, "epoch": step / 100}
        )
        lines[-1] |= {"percentage": step / 5, "elapsed_time": "0:00:10", "remaining_time": "1:02:03"}
        if step % 100 == 0:
            lines.append({"current_steps": step, "total_steps": 500, "eval_loss": loss_at(step), "epoch": step / 100})
    log = read_one(
        text(tmp_path, "trainer_log.jsonl", "\n".join(map(json.dumps, lines)) + '\n{"current_steps": 500, "lo')
    )
    assert signal(log, "loss") == {step: loss_at(step) for step in range(5, 505, 5)}
    assert signal(log, "learning_rate")[5] == 1e-5
    assert metric(log, "eval_loss")[300] == loss_at(300)
    assert log.window.facts == {"planned_steps": 500.0}
    assert log.notes == ("1 line skipped: not a complete JSON object.",)


def test_nested_numbers_and_numbers_as_text(tmp_path: Path) -> None:
    lines = [
        '{"step": 1, "train": {"loss": "2.5", "grad_norm": "nan"}, "note": "warm up", "done": false}',
        '{"step": 2, "train": {"loss": NaN, "grad_norm": Infinity}}',
        '{"step": 3, "train": {"loss": null, "grad_norm": 1}}',
    ]
    log = read_one(text(tmp_path, "log.jsonl", "\n".join(lines)))
    loss = signal(log, "loss")
    assert loss[1] == 2.5
    assert math.isnan(loss[2])
    assert 3 not in loss
    assert signal(log, "gradient_norm")[2] == math.inf


def test_runs_by_name(tmp_path: Path) -> None:
    lines = [json.dumps({"run_id": run, "step": step, "loss": 1.0}) for step in range(5) for run in ("x", "y")]
    assert [log.name for log in read(text(tmp_path, "sweep.jsonl", "\n".join(lines)))] == [
        "sweep.jsonl x",
        "sweep.jsonl y",
    ]


def test_one_document(tmp_path: Path) -> None:
    rows = [{"step": step, "loss": loss_at(step)} for step in range(1, 6)]
    expected = {step: loss_at(step) for step in range(1, 6)}
    assert signal(read_one(text(tmp_path, "list.json", json.dumps(rows, indent=1))), "loss") == expected
    keras = {"loss": list(expected.values()), "val_loss": [3.0] * 5}
    log = read_one(text(tmp_path, "keras.json", json.dumps(keras)))
    assert signal(log, "loss") == expected
    assert metric(log, "val_loss") == dict.fromkeys(range(1, 6), 3.0)
    assert (
        signal(read_one(text(tmp_path, "held.json", json.dumps({"name": "x", "log": rows}, indent=1))), "loss")
        == expected
    )


def test_lines_that_are_no_json_before_and_between_the_others(tmp_path: Path) -> None:
    lines = [json.dumps({"step": step, "loss": loss_at(step)}) for step in range(1, 6)]
    log = read_one(text(tmp_path, "log.jsonl", "\n".join(["WARNING: slow", *lines[:3], "{oh", *lines[3:], ""])))
    assert log.kind == "json-lines"
    assert signal(log, "loss") == {step: loss_at(step) for step in range(1, 6)}
    assert log.notes == ("2 lines skipped: not a complete JSON object.",)


def test_of_a_list_that_was_cut_off_the_rows_before_the_cut_are_read(tmp_path: Path) -> None:
    log = read_one(text(tmp_path, "cut.json", '[{"loss": 2.5, "step": 3}, {"loss": NaN, "step": 4},\n {"loss": 1'))
    assert log.window.steps.tolist() == [3, 4]
    assert log.notes == ("The file is cut off or damaged; its first 2 rows were read.",)


def test_bad_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no rows of a log in it"):
        read(text(tmp_path, "broken.jsonl", "{oh\n{dear\n"))
    with pytest.raises(UsageError, match="truncated or not JSON"):
        read(text(tmp_path, "cut.json", '[{"lo'))
