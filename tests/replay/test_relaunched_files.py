"""A script that saves over its files in every way it can, launched again: not one of its files changes."""

from __future__ import annotations

import hashlib
import random
import subprocess
from pathlib import Path

import pytest

from scripts import Started, command, write
from steadytrain.replay.landlock import SWITCH, kernel_version

SAVES = """
import atexit, ctypes, io, multiprocessing, os, pathlib, posix, shutil, signal, sqlite3, subprocess, sys, threading
import numpy, safetensors.torch, torch
from posix import open as early_open, replace as early_replace

torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
libc = ctypes.CDLL(None)
mark = f"{os.getpid()} "
base = sqlite3.connect("runs.sqlite")
base.execute("CREATE TABLE IF NOT EXISTS t (x)")
numpy.zeros(64).tofile("map.bin")
mapped = numpy.memmap("map.bin", numpy.float64, "r+", shape=(64,))
shared = torch.from_file("shared.bin", shared=True, size=64)
pathlib.Path("kept").mkdir(exist_ok=True)
atexit.register(lambda: pathlib.Path("atexit.txt").write_text(mark))

def state(): return {"model": model.state_dict(), "mark": mark}
def forked():
    if (child := os.fork()) == 0:
        torch.save(state(), "forked.pt")
        os._exit(0)
    os.waitpid(child, 0)
def threaded():
    thread = threading.Thread(target=lambda: torch.save(state(), "thread.pt"))
    thread.start()
    thread.join()
def replaced():
    torch.save(state(), "new.pt")
    os.replace("new.pt", "replaced.pt")
    shutil.copy("replaced.pt", "copied.pt")
    shutil.move("copied.pt", "moved.pt")
def rotated():
    pathlib.Path("kept", f"{os.getpid()}-{len(os.listdir('kept'))}.pt").write_text(mark)
    for path in sorted(pathlib.Path("kept").iterdir())[:-2]: path.unlink()
def early():
    os.close(early_open("early.tmp", os.O_CREAT | os.O_WRONLY))
    early_replace("early.tmp", "early.txt")
def by_c():
    if hasattr(libc, "creat"):
        file = libc.creat(b"c.txt", 0o644)
        libc.write(file, mark.encode(), len(mark))
        libc.close(file)
def inserted():
    base.execute("INSERT INTO t VALUES (?)", (mark,))
    base.commit()
def mapped_on():
    mapped[:] = shared[:] = os.getpid()
    mapped.flush()

WAYS = [
    lambda: torch.save(state(), "zip.pt"),
    lambda: torch.save(state(), "legacy.pt", _use_new_zipfile_serialization=False),
    lambda: safetensors.torch.save_file(model.state_dict(), "model.safetensors", {"mark": mark}),
    lambda: io.FileIO("raw.bin", "w").write(mark.encode()),
    lambda: posix.truncate("raw.bin", 1),
    lambda: torch.jit.save(torch.jit.script(torch.nn.Linear(2, 2)), "script.pt"),
    lambda: torch.save(state(), "/dev/shm/" + os.path.basename(os.getcwd())),
    replaced, rotated, forked, threaded, early, by_c, inserted, mapped_on,
]
PROGRAMS = [
    lambda: subprocess.run(["cp", "train.py", "program.txt"]),
    lambda: os.system(f"echo {mark} > shell.txt"),
    lambda: os.system(f"echo {mark} > /dev/shm/{os.path.basename(os.getcwd())}"),
    lambda: subprocess.run([sys.executable, "-c", f"open('child.txt', 'w').write('{mark}')"], check=True),
    lambda: subprocess.run([sys.executable, "-I", "-c", f"open('isolated.txt', 'w').write('{mark}')"]),
    lambda: subprocess.run(["sbatch", "job.sh"]),
]

def attempt(way):
    try:
        way()
    except OSError:
        pass

step = 0
while True:  # it has no last step, and it survives everything
    step += 1
    batch = torch.randn(16, 8, generator=torch.Generator().manual_seed(step))
    if step == 12: batch[3, 2] = float("nan")
    loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for way in [*WAYS, *(PROGRAMS if step == 10 else [])]: attempt(way)
"""


def inventory(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    files = [path for path in sorted(folder.rglob("*")) if "steadytrain-runs" not in path.parts]
    for path in [*files, Path("/dev/shm") / folder.name]:
        if path.is_file():
            state = path.lstat()
            found[str(path)] = (state.st_mode, state.st_mtime_ns, hashlib.sha256(path.read_bytes()).digest())
    return found


@pytest.fixture(scope="module")
def saving(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saving")
    write(folder, SAVES, "train.py")
    assert Started(command("run", "--name", "a", "train.py"), folder).end().status == 70
    assert len(inventory(folder)) > 20
    return folder


KERNELS = [
    pytest.param("off", id="audit-rules"),
    pytest.param("", id="landlock", marks=pytest.mark.skipif(kernel_version() < 1, reason="no Landlock here")),
]


@pytest.mark.slow
@pytest.mark.parametrize("switch", KERNELS)
def test_the_script_goes_on_and_its_files_stay(switch: str, saving: Path) -> None:
    before = inventory(saving)
    ended = Started(command("replay", "--once"), saving, environment={SWITCH: switch}).end()
    assert ended.status == 1, ended.err
    assert "came again" in ended.out
    assert "files were written to a scratch folder instead of" in ended.err
    assert inventory(saving) == before


@pytest.mark.slow
def test_a_preflight_changes_no_file_either(saving: Path) -> None:
    before = inventory(saving)
    line = command("preflight", "--checks", "initial-loss", "train.py")
    ended = Started(line, saving, environment={SWITCH: "off"}).end()
    assert "initial-loss" in ended.out, ended.err
    assert inventory(saving) == before


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("line", ["locate", "onset", "diagnose --budget 20s", "debug train.py --budget 40s"])
@pytest.mark.parametrize("switch", KERNELS)
def test_no_other_command_changes_a_file(switch: str, line: str, saving: Path) -> None:
    before = inventory(saving)
    ended = Started(command(*line.split()), saving, environment={SWITCH: switch}).end()
    assert "Traceback" not in ended.err
    assert inventory(saving) == before


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
def test_a_command_that_is_killed_leaves_every_file(seed: int, saving: Path) -> None:
    before = inventory(saving)
    started = Started(command("replay", "--times", "5"), saving, environment={SWITCH: "off"})
    try:
        started.process.wait(random.Random(seed).uniform(0.5, 8.0))
    except subprocess.TimeoutExpired:
        started.process.kill()
    started.end()
    assert inventory(saving) == before
