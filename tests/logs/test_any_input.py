"""Whatever the bytes are: logs or a ``UsageError`` of one line, and steps that only rise."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steadytrain.core.errors import UsageError
from steadytrain.logs import Columns, Log, find_logs
from steadytrain.logs.log_rows import RowsBuilder
from steadytrain.logs.log_runs import logs_of

NAMES = (
    "log",
    "log.csv",
    "log.tsv",
    "log.jsonl",
    "log.json",
    "trainer_state.json",
    "run-x.wandb",
    "x.tfevents.1",
    "m.db",
)
SEEDS = (
    b"step,loss,lr\n1,2.0,0.1\n2,nan,\n3,inf,1e-5\n",
    b'"Step";"Loss"\n"1,000";2,5\n',
    b'{"step": 1, "loss": 2.0}\n{"step": 2, "loss": NaN}\n',
    b'{"log_history": [{"step": 1, "loss": 2.0, "grad_norm": NaN}, {"step": 2, "loss": 1.0}], "max_steps": 9}',
    b"step 1 | loss 2.0 | lr 0.1\nEpoch 2/3\n 5/10 [==>..] - ETA: 3s - loss: 0.3\n{'loss': nan, 'epoch': 0.1}\n",
    b'"Step","a - loss","a - loss__MIN"\n"1","2","3"\n',
    b":W&B\xe1\xbe\x00" + b"\x00" * 4 + b"\x05\x00\x01" + b"\x12\x03\x0a\x01\x00",
)


def check(path: Path) -> None:
    logs: tuple[Log, ...] = ()
    said = ""
    try:
        logs = find_logs(path, Columns()).logs
    except UsageError as error:
        said = str(error)
    assert logs or said
    assert len(said.splitlines()) <= 1
    assert len(said) < 1_000
    for log in logs:
        window = log.window
        assert (np.diff(window.steps) > 0).all()
        for name, values in window.signals.items():
            assert len(values) == len(window.present[name]) == len(window)
        for series in window.metrics.values():
            assert (np.diff(series.steps) > 0).all()


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(content=st.binary(max_size=300))
def test_any_bytes(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    check(path)


@pytest.mark.parametrize("seed", SEEDS, ids=range(len(SEEDS)))
def test_a_log_with_some_bytes_changed(tmp_path: Path, seed: bytes) -> None:
    """What a disk, an editor or two writers at once make of a log."""
    chance = random.Random(1)
    for _ in range(150):
        content = bytearray(seed * chance.choice([1, 3]))
        for _ in range(chance.randint(1, 6)):
            place = chance.randrange(len(content))
            what = chance.randrange(3)
            if what == 0:
                content[place] = chance.choice(b',;\n\r"{}[]0-9e.:\x00\xff\x1b ' + bytes([chance.randrange(256)]))
            elif what == 1:
                del content[place : place + chance.randint(1, 20)]
                content = content or bytearray(b"x")
            else:
                content[place:place] = chance.choice(
                    [b"1e999", b"-9" * 30, b"nan", b"\n\n", b",,", b'"', b"\xef\xbb\xbf"]
                )
        path = tmp_path / "log"
        path.write_bytes(content)
        check(path)


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-5, 40).map(float)
rows = st.lists(
    st.dictionaries(st.sampled_from(["step", "loss", "grad_norm", "epoch", "val_loss", "max_steps"]), numbers),
    max_size=40,
)


@settings(max_examples=300)
@given(rows=rows, runs=st.booleans())
def test_any_rows(rows: list[dict[str, float]], runs: bool) -> None:
    builder = RowsBuilder()
    for number, row in enumerate(rows):
        builder.add(row, run=str(number % 3) if runs else None)
    try:
        logs = logs_of(builder.build(), Columns(), path=Path("log"), kind="test")
    except UsageError:
        return
    for log in logs:
        assert len(log.window)
        assert (np.diff(log.window.steps) > 0).all()
        for series in log.window.metrics.values():
            assert (np.diff(series.steps) > 0).all()
        assert all(step in log.window.steps for step in log.window.resumed)
