"""TensorBoard, read back by its own reader."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorboard")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from builders import records
from feeding import SECRET, STEPS, feed
from scripts import Started, write
from steadytrain.exporters import run_exports

SCRIPT = """
import sys
from feeding import followed
from torch.utils.tensorboard import SummaryWriter

writer = SummaryWriter("logs/mine")
for record in followed(sys.argv[1:]):
    writer.add_scalar("loss", record.scalars["loss"], record.step, walltime=record.time)
writer.close()
"""


@pytest.fixture(autouse=True)
def _time_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests want to see what came of it, on a busy machine too."""
    monkeypatch.setattr(run_exports, "CLOSE_WAIT_S_MAX", 90.0)


def read(folder: Path) -> EventAccumulator:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    return events


def texts(events: EventAccumulator, tag: str) -> list[tuple[int, str]]:
    return [(event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(tag)]


def test_a_run_is_read_back(tmp_path: Path) -> None:
    told: list[str] = []
    feed(tmp_path / "run", ["tensorboard"], told=told)
    assert told == []
    events = read(tmp_path / "run" / "tensorboard")
    expected = records(STEPS, nan_at=STEPS)

    loss = events.Scalars("loss")
    assert [event.step for event in loss] == [record.step for record in expected]
    assert [event.value for event in loss[:-1]] == pytest.approx([record.scalars["loss"] for record in expected[:-1]])
    assert math.isnan(loss[-1].value)
    assert loss[10].wall_time == expected[10].time
    assert [event.step for event in events.Scalars("refused")] == [STEPS]

    assert [event.step for event in events.Scalars("gradients/model.head.bias/norm")] == [1, 50, 100]
    assert events.Scalars("gradients/model.head.bias/norm")[0].value == pytest.approx(0.1)
    assert events.Scalars("gradients/norm_largest")[0].value == pytest.approx(0.5)
    assert events.Scalars("machine/host/process_memory_bytes")[0].value == pytest.approx(4e9)
    assert events.Scalars("machine/cuda:0/temperature_c")[0].value == 61.0
    assert "machine/host/temperature_c" not in events.Tags()["scalars"]

    names = ["gradients/head.weight/log2", "gradients/head.weight/values", "weights/head.weight/log2"]
    assert events.Tags()["histograms"] == names
    (signed,) = events.Histograms("gradients/head.weight/values")
    limits = np.array(signed.histogram_value.bucket_limit)
    heights = np.array(signed.histogram_value.bucket)
    assert (limits[0], limits[-1]) == (pytest.approx(-1 + 1 / 30), 1.0)
    assert heights[limits < -0.51].sum() == pytest.approx(0.0)
    assert heights[(limits > -0.51) & (limits < -0.2)].sum() == pytest.approx(0.5)
    assert heights[limits > 0.51].sum() == pytest.approx(0.25)
    (histogram,) = events.Histograms("gradients/head.weight/log2")
    value = histogram.histogram_value
    filled = {limit: count for limit, count in zip(value.bucket_limit, value.bucket, strict=True) if count}
    assert filled == {-41.0: 0.25, -1.0: 0.5, 0.0: 0.25}  # zeros, up to 1/2, up to 1
    assert (histogram.step, value.num, value.min, value.max) == (100, 1.0, -42.0, 0.0)

    assert [(event.step, event.value) for event in events.Scalars("symptoms/nonfinite-gradient")] == [(STEPS, 3.0)]
    ((step, message),) = texts(events, "symptoms/nonfinite-gradient/message")
    assert (step, message) == (STEPS, f"    critical, step {STEPS}: 2 of 3 gradients are not finite")
    ((step, incident),) = texts(events, "incidents")
    assert step == STEPS
    assert "aten.log.default" in incident
    assert str(tmp_path / "run" / "incidents" / f"step-{STEPS:06d}") in incident
    ((_, facts),) = texts(events, "run")
    assert "--hub-token" in facts
    assert SECRET not in facts
    assert texts(events, "ended") == [(0, "    stopped")]
    assert not list((tmp_path / "run").glob("*.log"))


@pytest.mark.slow
def test_a_script_s_own_writer_is_joined_beside_and_left_alone(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    started = {}
    for name in ("none", "auto"):
        folder = tmp_path / name
        folder.mkdir()
        write(folder, SCRIPT)
        started[folder] = Started([sys.executable, "script.py", name], folder)
    files = []
    for folder, script in started.items():
        ended = script.end()
        assert ended.status == 0, ended.err
        assert ("also in the active tensorboard run" in ended.out) == (folder.name == "auto")
        files += (folder / "logs" / "mine").glob("events.*")
    bare, ours = (read(file) for file in files)
    assert ours.Tags() == bare.Tags()
    assert ours.Scalars("loss") == bare.Scalars("loss")
    assert not (tmp_path / "none" / "logs" / "mine" / "steadytrain").exists()
    joined = read(tmp_path / "auto" / "logs" / "mine" / "steadytrain")
    assert [event.step for event in joined.Scalars("steadytrain/loss")] == list(range(1, STEPS + 1))
    assert not (tmp_path / "auto" / "run" / "tensorboard").exists()
