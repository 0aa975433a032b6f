"""A script that trains on another thread than the one that imported torch is recorded and guarded as any other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from scripts import Ended, run_script, write_script
from steadytrain.capture.step.live_run import OTHER_THREAD

TRAINS = """
    import threading
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def train(steps, bad=None, model=model, optimizer=optimizer):
        for step in range(1, steps + 1):
            rows = torch.randn(8, 4)
            if step == bad:
                rows[3] = float("nan")
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(rows), rows.sum(1, keepdim=True)).backward()
            optimizer.step()

    def on_threads(*threads):
        for one in threads:
            one.start()
        for one in threads:
            one.join()
"""
SHOWS = """
    print(model.weight.tolist(), torch.random.get_rng_state().sum().item())
"""
AT_ONCE = """
    other = torch.nn.Linear(4, 1)
    turns = threading.Barrier(2)

    def both(model, lr):
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        for step in range(12):
            turns.wait(60)  # each step beside one of the other
            train(1, model=model, optimizer=optimizer)

    on_threads(*(threading.Thread(target=both, args=(one, 0.1)) for one in (model, other)))
"""


def watched(folder: Path, *parts: str, fails: bool = False) -> Ended:
    return run_script(folder, "".join((TRAINS, *parts)), fails=fails)


def steps_of(ended: Ended) -> list[int]:
    return list(ended.run.scalars().steps)


def test_it_is_recorded_and_computes_what_it_computes_bare(tmp_path: Path) -> None:
    body = "    on_threads(threading.Thread(target=train, args=(12,)))\n"
    ended = watched(tmp_path, body, SHOWS)
    script = write_script(tmp_path, TRAINS + body + SHOWS, "bare.py")
    bare = subprocess.run([sys.executable, script], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.out == bare.stdout
    assert steps_of(ended) == list(range(1, 13))
    assert OTHER_THREAD not in ended.err


def test_an_update_is_refused_there(tmp_path: Path) -> None:
    ended = watched(tmp_path, "    on_threads(threading.Thread(target=train, args=(12, 9)))\n", fails=True)
    assert ended.status == 70
    assert "STOPPED before the update of step 9: the loss is NaN" in ended.told
    assert steps_of(ended)[-1] == 9


def test_each_epoch_on_a_thread_of_its_own(tmp_path: Path) -> None:
    ended = watched(
        tmp_path, "    for epoch in range(3):\n        on_threads(threading.Thread(target=train, args=(6,)))\n"
    )
    assert steps_of(ended) == list(range(1, 19))
    assert OTHER_THREAD not in ended.err


def test_the_second_of_two_at_once_is_said_not_to_be_recorded(tmp_path: Path) -> None:
    ended = watched(tmp_path, AT_ONCE)
    assert ended.status == 0, ended.err
    assert ended.err.count(OTHER_THREAD) == 1
    assert len(steps_of(ended)) >= 11


@pytest.mark.parametrize("with_gradients", [False, True], ids=["without gradients", "with gradients"])
def test_a_thread_that_evaluates_takes_nothing_over(tmp_path: Path, with_gradients: bool) -> None:
    evaluates = f"""
    stop = threading.Event()

    def evaluate():
        with torch.set_grad_enabled({with_gradients}):
            while not stop.is_set():
                model(torch.ones(2, 4))

    beside = threading.Thread(target=evaluate)
    train(2)
    beside.start()
    train(10)
    stop.set()
    beside.join()
"""
    ended = watched(tmp_path, evaluates)
    assert steps_of(ended) == list(range(1, 13))
    assert OTHER_THREAD not in ended.err


def test_parts_of_a_model_on_threads_take_nothing_over(tmp_path: Path) -> None:
    """As DataParallel calls its replicas."""
    parts = """
    class Parallel(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = torch.nn.ModuleList(torch.nn.Linear(4, 1) for _ in range(2))

        def forward(self, rows):
            made = {}

            def call(part):
                with torch.enable_grad():
                    made[part] = self.parts[part](rows)

            on_threads(*(threading.Thread(target=call, args=(part,)) for part in range(2)))
            return made[0] + made[1]

    parallel = Parallel()
    train(12, model=parallel, optimizer=torch.optim.SGD(parallel.parameters(), lr=0.1))
"""
    ended = watched(tmp_path, parts)
    assert steps_of(ended) == list(range(1, 13))
    assert OTHER_THREAD not in ended.err
    assert list(ended.run.scalars().series("samples").values) == [8.0] * 12


BETWEEN = """
    def evaluate():
        model.eval()
        torch.nn.functional.mse_loss(model(torch.ones(2, 4)), torch.ones(2, 1)).item()
        model.train()

    for epoch in range(3):
        on_threads(threading.Thread(target=train, args=(6,)))
        evaluate()
"""
FIRST = """
    train(6)
    for epoch in range(2):
        on_threads(threading.Thread(target=train, args=(6,)))
"""


@pytest.mark.parametrize("body", [BETWEEN, FIRST], ids=["evaluated in between", "the first one on the main thread"])
def test_it_is_followed_from_thread_to_thread(tmp_path: Path, body: str) -> None:
    ended = watched(tmp_path, body)
    assert steps_of(ended) == list(range(1, 19))
    assert OTHER_THREAD not in ended.err


def test_a_refused_update_stays_refused_on_other_threads(tmp_path: Path) -> None:
    body = """
    on_threads(threading.Thread(target=train, args=(6, 4)))
    for epoch in range(2):
        on_threads(threading.Thread(target=train, args=(6,)))
    print(bool(model.weight.isfinite().all()), [int(state["step"]) for state in optimizer.state.values()])
"""
    ended = watched(tmp_path, body, fails=True)
    assert ended.status == 70
    assert ended.out.strip() == "True [3, 3]"
