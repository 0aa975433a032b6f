"""What is left to do where parts are gone or other than they were: each said in one line."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import zoo_cases
from scripts import call, run_script
from steadytrain.storage.bundle import seal
from steadytrain.storage.tape_files import find_chunks, find_recording, find_snapshots

WAIT_S_MAX = 180.0

KILLED = """
    import os, signal, time
    from pathlib import Path
    import torch
    from torch import nn
    from steadytrain.capture.snapshots import tape
    from steadytrain.storage.tape_files import find_recording

    tape.CHUNK_S = 0.05
    torch.manual_seed(0)
    model = nn.Linear(8, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(1, 121):
        loss = model(torch.randn(16, 8)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        while step == 70 and (find_recording(Path("runs/run")).last_step or 0) < 65:
            time.sleep(0.02)  # until what waits to be written is written
    os.kill(os.getpid(), signal.SIGKILL)
"""


def replay(source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return call("replay", str(source), "--json", *options)


def refused(source: Path, *options: str) -> str:
    done = replay(source, *options)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), done.stderr
    return done.stderr


def document(source: Path, *options: str) -> dict[str, Any]:
    done = replay(source, *options)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


WAITS_FOR_SNAPSHOTS = """
from steadytrain.capture.snapshots.rewind import Rewind
from steadytrain.capture.snapshots.snapshots import Snapshots

def gate(rewind, *given, at_once=Rewind.gate):
    rewind.snapshots.settle()
    at_once(rewind, *given)

Rewind.gate = gate
Snapshots.__init__.__kwdefaults__["cost_share"] = float("inf")
"""


def with_all_snapshots(name: str) -> str:
    """A run of the zoo that waits for each snapshot: which there are does not hang on the speed of the machine."""
    return WAITS_FOR_SNAPSHOTS + (zoo_cases.ZOO / "replays" / name).read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_is_gone_or_other_than_it_was_is_told(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, with_all_snapshots("raw_loop.py"))
    (whole,) = outcome.run.incidents
    first, *_, last = find_snapshots(whole / "replay")

    def copy(name: str) -> Path:
        return Path(shutil.copytree(whole, tmp_path / name))

    assert f"one of {first.step + 1}, " in refused(whole, "--from", str(first.step + 2))
    assert "the tape reaches only step 150" in refused(whole, "--until", "151")

    other = copy("other")
    path = other / "environment.json"
    environment = json.loads(path.read_text(encoding="utf-8"))
    environment["versions"]["torch"], environment["python"] = "2.6.0", "3.10.1"
    environment["device"]["cpu_capability"] = "AVX512_OF_ANOTHER_MACHINE"
    path.write_text(json.dumps(environment), encoding="utf-8")
    seal(other, "environment.json")
    told = document(other, "--from", str(last.step + 1))
    assert told["exact"]
    assert [change.split(":")[0] for change in told["changed"]] == ["Python", "torch", "CPU capability"]

    fewer = copy("fewer")
    shutil.rmtree(fewer / "replay" / "snapshots" / last.folder.name)
    told = document(fewer)
    assert (told["exact"], told["from_step"] <= last.step) == (True, True)
    assert f"at one of {first.step + 1}" in refused(fewer, "--from", str(last.step + 1))
    shutil.rmtree(fewer / "replay" / "snapshots")
    told = document(fewer)
    assert (told["exact"], told["from_step"], told["until_step"]) == (True, 150, 150)
    assert "no snapshot" in refused(fewer, "--from", "66")
    (fewer / "model.safetensors").rename(tmp_path / "weights")
    assert "model.safetensors is missing" in refused(fewer)

    damaged = copy("damaged")
    chunk = find_chunks(damaged / "replay")[0].document
    chunk.write_bytes(chunk.read_bytes()[:100])
    assert "truncated or changed" in refused(damaged)
    flipped = copy("flipped")
    for file, what in ((last.tensors, "the snapshot of step"), (find_chunks(whole / "replay")[-1].tensors, "the tape")):
        changed = flipped / file.relative_to(whole)
        good = changed.read_bytes()
        changed.write_bytes(good[:-3] + bytes([good[-3] ^ 1]) + good[-2:])
        done = replay(flipped, "--from", str(last.step + 1))
        assert (done.returncode, done.stdout) == (125, "")
        assert what in done.stderr
        assert "is damaged" in done.stderr
        changed.write_bytes(good)
    cut_off = copy("cut-off")
    (cut_off / "manifest.json").unlink()
    assert "writing was interrupted" in refused(cut_off)


@pytest.mark.slow
def test_a_killed_run_is_replayed_from_its_folder(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, KILLED)
    assert outcome.status == -9, outcome.err
    reached = find_recording(outcome.run_dir).last_step
    assert reached is not None
    assert reached >= 65
    done = replay(outcome.run_dir)
    told = json.loads(done.stdout)
    assert (done.returncode, told["exact"], told["symptom"], told["until_step"]) == (0, True, None, reached)


@pytest.mark.long
@pytest.mark.slow
def test_another_order_of_the_data_is_told_and_does_not_matter(tmp_path: Path) -> None:
    source = with_all_snapshots("two_workers.py")
    outcome = run_script(tmp_path, source)
    script = tmp_path / "train.py"
    script.write_text(source.replace("torch.manual_seed(0)", "torch.manual_seed(1)"), encoding="utf-8")
    for options, equal in (((), False), (("--lead-s", "0", "--until", "149"), None)):
        told = document(outcome.run_dir, *options)
        assert (told["exact"], told["script_batches_equal"]) == (True, equal), told
    assert told["changed"] == [f"{script}: the file has changed"]
    script.write_text(source.replace("    def __len__", "        raise OSError('the data is gone')\n\n    def __len__"))
    done = replay(outcome.run_dir)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (125, "", 1)
    assert "the data is gone" in done.stderr
