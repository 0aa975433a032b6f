"""TensorBoard's event files, written by tensorboard's own writer."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tensorboard")

from reading import NAN, loss_at, metric, read, read_one, signal
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from steadytrain.core.errors import UsageError


def write(folder: Path, points: list[tuple[str, int, float]], *, suffix: str = "") -> Path:
    writer = EventFileWriter(str(folder), filename_suffix=suffix)
    for tag, step, value in points:
        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        writer.add_event(Event(wall_time=1000.0 + step, step=step, summary=summary))
    writer.close()
    return next(path for path in folder.iterdir() if path.name.endswith(suffix))


def training(steps: range) -> list[tuple[str, int, float]]:
    points = []
    for step in steps:
        points += [
            ("train/loss", step, loss_at(step)),
            ("train/learning_rate", step, 0.5),
            ("train/grad_norm", step, 2.0),
        ]
        if step % 50 == 0:
            points.append(("eval/loss", step, loss_at(step)))
    return points


def close(found: dict[int, float], steps: range) -> bool:
    return list(found) == list(steps) and all(math.isclose(found[s], loss_at(s), rel_tol=1e-6) for s in steps)


def test_a_folder_and_its_file(tmp_path: Path) -> None:
    file = write(tmp_path / "exp", [*training(range(1, 201)), ("train/loss", 201, NAN)])
    for path in (tmp_path / "exp", file):
        log = read_one(path)
        assert log.kind == "tensorboard"
        loss = signal(log, "loss")
        assert math.isnan(loss.pop(201))
        assert close(loss, range(1, 201))
        assert set(signal(log, "gradient_norm").values()) == {2.0}
        assert close(metric(log, "eval/loss"), range(50, 201, 50))
        assert log.window.time[0] == 1001.0


def test_a_resumed_run_has_two_files_and_is_one(tmp_path: Path) -> None:
    write(tmp_path, training(range(1, 101)), suffix=".a")
    write(tmp_path, training(range(81, 151)), suffix=".b")
    log = read_one(tmp_path)
    assert close(signal(log, "loss"), range(1, 151))
    assert log.window.resumed.tolist() == [81]


def test_runs_below_a_folder_and_evaluations_in_one_of_their_own(tmp_path: Path) -> None:
    write(tmp_path / "a", training(range(1, 20)))
    write(tmp_path / "b" / "train", [("epoch_loss", step, loss_at(step)) for step in range(5)])
    write(tmp_path / "b" / "validation", [("epoch_loss", step, loss_at(step)) for step in range(5)])
    assert [log.name for log in read(tmp_path)] == ["a", "train"]


def test_a_metric_that_counts_epochs_does_not_spoil_the_steps(tmp_path: Path) -> None:
    points = [("loss", step, loss_at(step)) for step in range(100, 1000)]
    points += [("lr", epoch, 0.1) for epoch in range(9)]
    log = read_one(write(tmp_path, points))
    assert close(signal(log, "loss"), range(100, 1000))
    assert "'lr' counts different steps than the loss and was left out." in log.notes


def test_a_truncated_file(tmp_path: Path) -> None:
    file = write(tmp_path, training(range(1, 201)))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    log = read_one(file)
    assert 50 < len(log.window) < 150
    assert "is cut short or damaged; its last" in log.notes[0]
    file.write_bytes(whole[:10])
    with pytest.raises(UsageError, match=r"no complete event in it|no scalars in it"):
        read(file)


def test_a_damaged_file_says_how_much_of_it_was_not_read(tmp_path: Path) -> None:
    file = write(tmp_path, training(range(1, 201)))
    damaged = bytearray(file.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    file.write_bytes(bytes(damaged))
    log = read_one(file)
    assert 50 < len(log.window) < 150
    (note,) = log.notes
    assert re.search(r" is damaged: its last 30\d of 60\d records were not read\.$", note), note


def test_without_tensorboard_the_command_to_install_it_is_named(tmp_path: Path) -> None:
    file = write(tmp_path, training(range(1, 5)))
    code = (
        "import sys; sys.modules['tensorboard'] = None; from pathlib import Path\n"
        "from steadytrain.logs import Columns, find_logs\n"
        f"try: find_logs(Path({str(file)!r}), Columns())\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "its own reader: pip install 'tensorboard>=" in done.stdout
    assert len(done.stdout.splitlines()) == 1
