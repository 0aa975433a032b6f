"""What the attack with mutants damages: small whole examples of each kind."""

from __future__ import annotations

import json
from pathlib import Path

import builders

VARIABLES = "variables.txt"
"""Lines NAME=VALUE of a mutant of settings, put into the environment of its command."""

SETTINGS = """[run]
level = "standard"
policy = "guard.toml"
to = ["tensorboard"]
notify = ["https://hooks.example.com/a/b"]
notify-at = "critical"
notify-per-hour = 4
rewind-mb = 100
state-mb = 2000
max-skips = 5
name = "settings-1"
every-step = true
"""
GATE_POLICY = """version = 1
[symptoms]
fail-on = "critical"
allow = ["loss-spike"]
[loss]
nonfinite = 0
lowest = 0.0
"""
GUARD_POLICY = """policy = "steady"
[symptoms]
loss-spike = "capture"
default = "note"
[budget]
skips = 100
lowest-learning-rate = 0.01
[ladders]
exploding-gradients = ["clip", ["roll-back", "lower-learning-rate"]]
[interventions.lower-learning-rate]
factor = 0.5
"""
ENVIRONMENT = "STEADYTRAIN_LEVEL=light\nSTEADYTRAIN_MAX_SKIPS=7\nSTEADYTRAIN_RUNS_DIR=runs\nSTEADYTRAIN_POLICY=skip\n"


def make_originals(place: Path) -> dict[str, list[Path]]:
    """Small whole examples of each kind."""
    place.mkdir(parents=True)
    bad = builders.bad_run(place / "bad")
    found = {"bundle": sorted((bad / "incidents").iterdir()), "run": [bad, builders.quiet_run(place / "quiet")]}
    return {**found, "settings": [_settings(place / "settings")], "log": _logs(place), "data": _data(place)}


def _settings(place: Path) -> Path:
    rows = "step,loss\n" + "".join(f"{step},{4.0 / step}\n" for step in range(1, 60))
    texts = {"steadytrain.toml": SETTINGS, "gate.toml": GATE_POLICY, "guard.toml": GUARD_POLICY, "log.csv": rows}
    _written(place, {**texts, VARIABLES: ENVIRONMENT, "train.py": "print('trained')"})
    return place


def _logs(place: Path) -> list[Path]:
    rows = [{"step": step, "loss": 4.0 / step, "grad_norm": 1.0, "lr": 1e-3} for step in range(1, 120)]
    texts = {
        "log.jsonl": "\n".join(map(json.dumps, rows)),
        "log.csv": "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]),
        "train.log": "\n".join(f"step {row['step']}/120 | loss {row['loss']:.4f} | lr 1e-3" for row in rows),
        "bars.log": "\n".join(f"{row['step']}/120 [00:01<00:09, 3.2it/s] loss: {row['loss']:.3f}" for row in rows),
        "trainer_state.json": json.dumps({"global_step": 119, "log_history": rows}),
    }
    return _written(place / "logs", texts)


def _data(place: Path) -> list[Path]:
    import numpy as np

    rows = [{"id": n, "text": f"a sentence number {n} of some words", "label": n % 3} for n in range(200)]
    texts = {
        "rows.jsonl": "\n".join(map(json.dumps, rows)),
        "rows.json": json.dumps(rows),
        "rows.csv": "\n".join([",".join(rows[0]), *(",".join(map(str, row.values())) for row in rows)]),
    }
    found = _written(place / "data", texts)
    np.save(place / "data" / "rows.npy", np.arange(4_000).reshape(40, 100))
    np.arange(9_000, dtype=np.uint16).tofile(place / "data" / "tokens.bin")
    found += [place / "data" / name for name in ("rows.npy", "tokens.bin")]
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError:
        return found
    arrow = pyarrow.Table.from_pylist([{**row, "input_ids": [row["id"]] * 20} for row in rows])
    parquet.write_table(arrow, place / "data" / "rows.parquet")
    feather.write_feather(arrow, place / "data" / "rows.feather", compression="uncompressed")
    with (
        pyarrow.OSFile(str(place / "data" / "rows.arrow"), "wb") as file,
        pyarrow.ipc.new_stream(file, arrow.schema) as out,
    ):
        out.write_table(arrow)
    return [*found, *(place / "data" / f"rows.{suffix}" for suffix in ("parquet", "feather", "arrow", "arrow"))]


def _written(place: Path, texts: dict[str, str]) -> list[Path]:
    place.mkdir()
    for name, text in texts.items():
        (place / name).write_text(text + "\n", encoding="utf-8")
    return [place / name for name in texts]
