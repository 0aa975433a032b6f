"""The examples in the docstrings of the public API run, on a small recorded run, and print nothing of their own."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import steadytrain  # noqa: E402
from replaying import plain_process  # noqa: E402
from scripts import run_script  # noqa: E402

SCRIPT = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(1, 9):
        batch = torch.rand(8, 4) + 0.1
        if step == 4:
            batch[2] = 0.0
        optimizer.zero_grad()
        loss = (model(batch).square().mean(1) * batch.sum(1).log()).mean()
        loss.backward()
        optimizer.step()
"""
LOSSES = "step,loss\n" + "".join(f"{step},{2.0 - step / 100}\n" for step in range(1, 60)) + "60,nan\n"
LONG = ("Diagnosis", "debug", "diagnose", "replay")
"""Trials take a minute; ``locate`` replays as ``replay`` does."""

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    ended = run_script(folder, SCRIPT, "--name", "stopped")
    assert ended.status == 70, ended.err
    (folder / "losses.csv").write_text(LOSSES, encoding="utf-8")
    return folder


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with plain_process():
        yield


def names() -> list[object]:
    public = sorted(set(steadytrain.__all__) - {"__version__"})
    return [pytest.param(name, marks=pytest.mark.long) if name in LONG else name for name in public]


@pytest.mark.slow
@pytest.mark.parametrize("name", names())
def test_its_example_runs(
    name: str, recorded: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(recorded)
    model = torch.nn.Linear(4, 1)
    known = {
        "steadytrain": steadytrain,
        "torch": torch,
        "model": model,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.01),
        "batch": torch.randn(8, 4),
    }
    value = getattr(steadytrain, name)
    text = steadytrain._load(name).__doc__ if name in steadytrain._PLACES else value.__doc__
    test = doctest.DocTestParser().get_doctest(text or "", known, name, None, 0)
    assert test.examples, f"{name} has no example"
    told: list[str] = []
    failed, _ = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=told.append)
    assert not failed, "".join(told)
    printed = capfd.readouterr()
    assert printed.out == ""
    assert name in ("RunStopped", "Watch", "watch") or "steadytrain: " not in printed.err
