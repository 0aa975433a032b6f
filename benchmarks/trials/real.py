"""Two small real runs, made on the spot: a byte-level language model in NumPy that reads Python's standard library.

One draws its batches at random, the other reads the files from front to back, so that batches resemble the last ones.
Each takes some seconds; what it logged is kept in the folder for temporary files. Also: logs from elsewhere as traces.
"""

from __future__ import annotations

import csv
import json
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from trials.noise import Generator, Trace, Values

STEPS = 8_000
BATCH, CONTEXT, EMBEDDING, HIDDEN = 64, 8, 16, 128
STREAMS = 8
RATE, BETAS, WARM_UP_STEPS = 2e-3, (0.9, 0.99), 100
TEXT_BYTES_MAX = 2_000_000
LOG_ROWS_MIN = 400
LOGS_MAX = 4
VERSION = 1
"""Part of the name of what is kept: to be raised when anything above or below changes what a run logs."""

Parameters = dict[str, Values]


def traces(count: int = STEPS) -> list[Trace]:
    return [_kept(name, count) for name in ("real, random order", "real, in order")]


def traces_of_logs(folder: Path) -> Iterator[Trace]:
    """The longest healthy ones of a folder with ``labels.json``. A row of a log counts as a step."""
    found = []
    for run in json.loads((folder / "labels.json").read_text(encoding="utf-8")):
        if run["label"] != "healthy":
            continue
        with (folder / run["file"]).open(newline="") as file:
            rows = list(csv.DictReader(file))
        loss = np.array([float(row["loss"]) for row in rows if row["loss"]])
        loss = loss[np.isfinite(loss)]
        if len(loss) >= LOG_ROWS_MIN:
            found.append(Trace(f"log of {len(loss):,} rows", loss, np.zeros(0)))
    yield from sorted(found, key=lambda trace: -len(trace.loss))[:LOGS_MAX]


def _kept(name: str, count: int) -> Trace:
    version = f"{VERSION}-{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    words = "-".join(name.replace(",", "").split())
    file = Path(tempfile.gettempdir()) / f"steadytrain-trace-{version}-{words}-{count}.npy"
    if not file.is_file():
        logged = np.array(list(train(text(), count, in_order=name.endswith(", in order"))))
        with tempfile.NamedTemporaryFile(dir=file.parent, suffix=".npy", delete=False) as part:
            np.save(part, logged)
        Path(part.name).replace(file)
    logged = np.load(file, allow_pickle=False)
    return Trace(name, logged[:, 0], np.log(logged[:, 1]))


def text() -> NDArray[np.uint8]:
    """The bytes of the standard library's modules, in the order of their names."""
    read = bytearray()
    for path in sorted(Path(sysconfig.get_path("stdlib")).glob("*.py")):
        read += path.read_bytes()
        if len(read) > TEXT_BYTES_MAX:
            break
    return np.frombuffer(bytes(read[:TEXT_BYTES_MAX]), np.uint8)


def train(data: NDArray[np.uint8], count: int, *, in_order: bool) -> Iterator[tuple[float, float]]:
    """Loss in nats and gradient norm of each step: 64 bytes, each foretold from the eight before it."""
    draw = np.random.default_rng(0)
    weights = _initial(draw)
    first = {name: np.zeros_like(weight) for name, weight in weights.items()}
    second = {name: np.zeros_like(weight) for name, weight in weights.items()}
    starts = np.arange(STREAMS)[:, None] * (len(data) // STREAMS)
    for step in range(1, count + 1):
        if in_order:
            at = (starts + (step - 1) * BATCH // STREAMS + np.arange(BATCH // STREAMS)).ravel() % (len(data) - CONTEXT)
        else:
            at = draw.integers(0, len(data) - CONTEXT, BATCH)
        loss, gradients = _loss(weights, data[at[:, None] + np.arange(CONTEXT)], data[at + CONTEXT])
        yield loss, float(np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values())))
        rate = RATE * min(1.0, step / WARM_UP_STEPS) * (1.0 - 0.9 * step / count)
        for name, gradient in gradients.items():
            first[name] += (1.0 - BETAS[0]) * (gradient - first[name])
            second[name] += (1.0 - BETAS[1]) * (gradient**2 - second[name])
            mean, square = first[name] / (1.0 - BETAS[0] ** step), second[name] / (1.0 - BETAS[1] ** step)
            weights[name] -= rate * mean / (np.sqrt(square) + 1e-8)


def _initial(draw: Generator) -> Parameters:
    inputs = CONTEXT * EMBEDDING
    return {
        "embedding": draw.standard_normal((256, EMBEDDING)),
        "hidden": draw.standard_normal((inputs, HIDDEN)) / inputs**0.5,
        "hidden_bias": np.zeros(HIDDEN),
        "output": 0.1 * draw.standard_normal((HIDDEN, 256)) / HIDDEN**0.5,
        "output_bias": np.zeros(256),
    }


def _loss(weights: Parameters, before: NDArray[np.uint8], after: NDArray[np.uint8]) -> tuple[float, Parameters]:
    inputs = weights["embedding"][before].reshape(BATCH, -1)
    hidden = np.tanh(inputs @ weights["hidden"] + weights["hidden_bias"])
    logits = hidden @ weights["output"] + weights["output_bias"]
    logits -= logits.max(axis=1, keepdims=True)
    share = np.exp(logits)
    share /= share.sum(axis=1, keepdims=True)
    loss = -float(np.log(share[np.arange(BATCH), after]).mean())
    share[np.arange(BATCH), after] -= 1.0
    share /= BATCH
    back = (share @ weights["output"].T) * (1.0 - hidden**2)
    embedding = np.zeros_like(weights["embedding"])
    np.add.at(embedding, before.ravel(), (back @ weights["hidden"].T).reshape(-1, EMBEDDING))
    return loss, {
        "embedding": embedding,
        "hidden": inputs.T @ back,
        "hidden_bias": back.sum(axis=0),
        "output": hidden.T @ share,
        "output_bias": share.sum(axis=0),
    }
