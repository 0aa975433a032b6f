"""``trainer_state.json``, written by transformers itself where it is installed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from reading import NAN, loss_at, metric, read, read_one, signal, text

from steadytrain.core.errors import UsageError


def history(steps: range, *, nan_from: int = 10**9) -> list[dict[str, Any]]:
    """Rows as the Trainer logs them: a loss that went to NaN is written as 0.0 (``logging_nan_inf_filter``)."""
    rows: list[dict[str, Any]] = []
    for step in steps:
        bad = step >= nan_from
        rows.append(
            {
                "epoch": step / 100,
                "grad_norm": NAN if bad else 1.5,
                "learning_rate": 1e-5,
                "loss": 0.0 if bad else loss_at(step),
                "step": step,
            }
        )
        if step % 100 == 0:
            rows.append({"epoch": step / 100, "eval_loss": loss_at(step), "eval_runtime": 3.1, "step": step})
    return rows


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"global_step": 1, "log_history": rows, "max_steps": 1000}))
    return path


def test_what_transformers_wrote(tmp_path: Path) -> None:
    callbacks = pytest.importorskip("transformers.trainer_callback")
    rows = [*history(range(10, 510, 10)), {"step": 500, "train_loss": 2.2, "train_runtime": 9.0, "epoch": 5.0}]
    state = callbacks.TrainerState(log_history=rows, max_steps=500, global_step=500)
    state.save_to_json(str(tmp_path / "trainer_state.json"))
    log = read_one(tmp_path / "trainer_state.json")
    assert log.kind == "trainer-state"
    assert log.name == f"{tmp_path.name}/trainer_state.json"
    assert signal(log, "loss") == {step: loss_at(step) for step in range(10, 510, 10)}
    assert signal(log, "learning_rate")[10] == 1e-5
    assert signal(log, "epoch")[250] == 2.5
    assert metric(log, "eval_loss") == {step: loss_at(step) for step in range(100, 501, 100)}
    assert log.window.facts == {"planned_steps": 500.0}
    assert log.notes == ()


def test_a_hidden_nan_is_kept_as_it_was_logged(tmp_path: Path) -> None:
    log = read_one(write(tmp_path / "trainer_state.json", history(range(10, 110, 10), nan_from=60)))
    assert signal(log, "loss")[60] == 0.0
    assert math.isnan(signal(log, "gradient_norm")[60])


def test_of_checkpoints_in_a_folder_the_newest_speaks(tmp_path: Path) -> None:
    for last in (100, 200, 1000):
        write(tmp_path / "a" / f"checkpoint-{last}" / "trainer_state.json", history(range(10, last + 1, 10)))
    write(tmp_path / "b" / "checkpoint-100" / "trainer_state.json", history(range(10, 101, 10)))
    write(tmp_path / "b" / "trainer_state.json", history(range(10, 201, 10)))
    a, b = read(tmp_path)
    assert (a.name, len(a.window)) == ("a/checkpoint-1000", 100)
    assert (b.name, len(b.window)) == ("b/trainer_state.json", 20)


def test_of_a_file_that_was_cut_off_the_rows_before_the_cut_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "trainer_state.json", history(range(10, 110, 10), nan_from=60))
    whole = path.read_text()
    path.write_text(whole[: whole.index('"step": 90')])
    log = read_one(path)
    assert log.window.steps.tolist() == list(range(10, 90, 10))
    assert math.isnan(signal(log, "gradient_norm")[60])
    assert log.notes == ("The file is cut off or damaged; its first 8 rows were read.",)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"log_history": [{"loss": 1.0, "st', "truncated or not JSON"),
        ('{"log_history": []}', "its log_history is empty"),
        ('{"best_metric": null}', "it has no log_history"),
        ('{"log_history": [{"eval_loss": 1.0, "step": 1}]}', "no column looks like a training loss"),
    ],
)
def test_bad_files(tmp_path: Path, content: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        read(text(tmp_path, "trainer_state.json", content))
