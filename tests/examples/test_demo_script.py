"""The example script makes its mistake where it should, and does not make it when the other end of a text is cut."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tokenizers")
pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "examples" / "stdlib_gpt" / "train.py"
STEPS, BATCH, CONTEXT, VOCAB = 30, 16, 64, 512
FUNCTIONS = 4000
"""So many of the standard library are enough for the batches here."""
LATE = STEPS * 2 // 3  # from here on batches hold documents that are longer than the context
TINY = ["--steps", STEPS, "--batch", BATCH, "--context", CONTEXT, "--vocab", VOCAB, "--width", 32, "--heads", 2]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("out")


@pytest.fixture(scope="module")
def train() -> ModuleType:
    spec = importlib.util.spec_from_file_location("stdlib_gpt_train", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    every_function = module.read_functions
    module.read_functions = lambda: itertools.islice(every_function(), FUNCTIONS)
    return module


@pytest.fixture(scope="module")
def batches(train: ModuleType, out: Path) -> list:
    documents, _ = train.load_documents(out, VOCAB)
    return train.plan_batches(documents, steps=STEPS, size=BATCH, context=CONTEXT, seed=1)


def test_a_prompt_that_fills_the_context_gives_a_nan_loss_at_a_known_step(train: ModuleType, batches: list) -> None:
    torch.manual_seed(0)
    model = train.GPT(vocab=VOCAB, context=CONTEXT, width=32, layers=1, heads=2)

    def loss(step: int, side: str) -> float:
        with torch.no_grad():
            return model(*train.collate(batches[step], context=CONTEXT, side=side)).item()

    bad = bad_step(train, batches)
    assert LATE <= bad < STEPS
    assert all(math.isfinite(loss(step, "right")) for step in range(bad))
    assert math.isnan(loss(bad, "right"))
    assert all(math.isfinite(loss(step, "left")) for step in range(STEPS))


def test_both_ways_learn_from_the_same_tokens_until_texts_are_cut(train: ModuleType, batches: list) -> None:
    for batch in batches[:LATE]:
        right, left = (train.collate(batch, context=CONTEXT, side=side) for side in ("right", "left"))
        assert all(map(torch.equal, right, left))


@pytest.mark.long
def test_from_that_step_on_the_script_logs_nan_and_its_parameters_are_lost(
    train: ModuleType, batches: list, out: Path
) -> None:
    logged, parameters = run(out, "right")
    bad = 1 + bad_step(train, batches)  # the log counts from 1
    assert {step: math.isfinite(loss) for step, loss in logged.items()} == {step: step < bad for step in logged}
    assert all(tensor.isnan().any() for tensor in parameters.values())


@pytest.mark.long
@pytest.mark.usefixtures("batches")  # they fill the cache in ``out``
def test_cutting_the_left_end_trains_to_the_end(out: Path) -> None:
    logged, parameters = run(out, "left")
    assert max(logged) == STEPS
    assert all(map(math.isfinite, logged.values()))
    assert logged[STEPS] < logged[1] - 0.5
    assert all(tensor.isfinite().all() for tensor in parameters.values())


def bad_step(train: ModuleType, batches: list) -> int:
    """The first step with a document of which nothing is left to learn."""
    masks = (train.collate(batch, context=CONTEXT, side="right")[2] for batch in batches)
    return next(step for step, mask in enumerate(masks) if (mask.sum(dim=1) == 0).any())


def run(out: Path, side: str) -> tuple[dict[int, float], dict]:
    """The script in plain Python: its logged losses by step, and the parameters it saved."""
    saved = out / f"{side}.pt"
    command = [sys.executable, SCRIPT, "--out", out, "--save", saved, "--truncation-side", side, *TINY]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=120, check=True)
    logged = {int(step): float(loss) for step, loss in re.findall(r"step +(\d+)  loss (\S+)", done.stdout)}
    return logged, torch.load(saved)
