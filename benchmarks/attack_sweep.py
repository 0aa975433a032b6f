"""Attack: an error in any function of ours, in turn; a healthy script must not notice.

A small training runs bare, and under ``steadytrain run`` to learn which functions of ``capture``, ``detection``,
``exporters``, ``integrations`` and ``attach`` it calls. Then it runs once for each of them, with a body that raises.
A function survives if the script's exit status and output (which holds a digest of its weights) are those of the bare
run. Each run is a fork of a process that has imported torch; several run at a time.

    python benchmarks/attack_sweep.py [--mode eager|compiled|ranks] [--only WORD] [--jobs N] [--share N/M] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import os
import random
import runpy
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

PACKAGES = ("capture", "detection", "exporters", "integrations", "attach")
MODES = ("eager", "compiled", "ranks")
RUN_S_MAX = 90.0
POLL_S = 0.02

STAND_INS = (
    "capture.hooks.module_hooks:",
    "capture.hooks.fail_open:",
    "capture.hooks.script_errors:",
    "capture.hooks.launch:",
    "capture.hooks.import_hook:_",
    "capture.hooks.clipping:NormsTaken.__torch_function__",
    "attach.entry_points:",
    "attach.launched_script:run_target",
    "attach.messages:tell",
    "attach.options:Options.__post_init__",
)
"""Beginnings of names that are not tried: the guard itself, the start of the script, the check of the options before
it, and what Python or torch calls in
place of its own function: it makes the original call and guarded ones, and nothing else."""

TRAINING = """
import hashlib, os, sys
import torch
from torch import nn

MODE = sys.argv[1]
torch.manual_seed(0)
rank = int(os.environ.get("RANK", "0"))
if MODE == "ranks":
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("../meet"), rank=rank, world_size=2)

class Rows(torch.utils.data.Dataset):
    def __init__(self):
        draw = torch.Generator().manual_seed(1)
        self.rows = torch.randn(160, 6, generator=draw)
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, index):
        return self.rows[index], self.rows[index].sum(0, keepdim=True)

model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 1))
trained = model
if MODE == "ranks":
    trained = nn.parallel.DistributedDataParallel(model)
if MODE == "compiled":
    trained = torch.compile(model, backend="eager")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 8, 0.5)
scaler = torch.amp.GradScaler("cpu", enabled=MODE == "eager", init_scale=8.0)
digest = hashlib.sha256()
for epoch in range(2):
    for inputs, targets in torch.utils.data.DataLoader(Rows(), batch_size=8, shuffle=True):
        optimizer.zero_grad()
        loss = (trained(inputs) - targets).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        digest.update(loss.item().hex().encode())
    model.eval()
    with torch.no_grad():
        digest.update(model(Rows().rows).sum().item().hex().encode())
    model.train()
    if epoch == 0:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "saved.pt")
        saved = torch.load("saved.pt")
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
for value in [*model.state_dict().values(), *(v for one in optimizer.state.values() for v in one.values())]:
    digest.update(bytes(value.detach().reshape(-1).contiguous().view(torch.uint8).tolist()))
if MODE == "ranks":
    dist.destroy_process_group()
print("digest", digest.hexdigest())
"""


@dataclass(frozen=True)
class End:
    """How the script ended on each rank: exit statuses (None: it hung), and standard outputs."""

    statuses: tuple[int | None, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Try:
    function: str
    survived: bool
    note: str = ""


# -- in a fork ---------------------------------------------------------------------------------------------------------


def in_fork(work: Callable[[], int], folder: Path, *, rank: int) -> int:
    """Start ``work`` in a fork whose current folder, output and error output are in ``folder``; returns its process."""
    process = os.fork()
    if process:
        return process
    status = 99
    try:
        os.setsid()
        os.chdir(folder)
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", LOCAL_RANK=str(rank))
        for number, name in ((1, "out"), (2, "err")):
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(file, number)
            os.close(file)
        status = work()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            _run_exit_functions()
        os._exit(status)


def _run_exit_functions() -> None:
    import atexit

    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()


def bare(mode: str) -> int:
    sys.argv = ["train.py", mode]
    return _status(lambda: runpy.run_path("train.py", run_name="__main__"))


def watched(mode: str) -> int:
    sys.argv = ["steadytrain", "run", "train.py", mode]
    return _status(lambda: runpy.run_module("steadytrain", run_name="__main__"))


def _status(work: Callable[[], object]) -> int:
    try:
        work()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def traced(mode: str, into: Path) -> int:
    """Run it watched, and write which functions of ours were called."""
    called: set[CodeType] = set()

    def profile(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            called.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    status = watched(mode)
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    names = sorted({name for code in called if (name := name_of(code)) is not None})
    into.write_text(json.dumps(names), encoding="utf-8")
    return status


def broken(mode: str, name: str) -> int:
    for function in functions():
        if name_of(function.__code__) == name:
            function.__code__ = _raising(function.__code__)
    return watched(mode)


def _raise(*_: Any, **__: Any) -> Any:
    raise RuntimeError("planted")


def _raising(code: CodeType) -> CodeType:
    """The code of a function that takes anything and raises, with the free variables that ``code`` needs."""
    return _raise.__code__.replace(co_freevars=code.co_freevars, co_name=code.co_name, co_filename=code.co_filename)


def functions() -> list[FunctionType]:
    return [one for one in gc.get_objects() if type(one) is FunctionType]


@functools.cache
def _root() -> str:
    import steadytrain

    return str(Path(steadytrain.__file__).parent) + os.sep


def name_of(code: CodeType) -> str | None:
    """Module and qualified name of a function of the packages that are tried; None for others."""
    if not code.co_filename.startswith(_root()) or "<" in code.co_qualname:
        return None
    module = code.co_filename[len(_root()) : -len(".py")].replace(os.sep, ".").removesuffix(".__init__")
    name = f"{module}:{code.co_qualname}"
    return name if module.split(".")[0] in PACKAGES and not name.startswith(STAND_INS) else None


# -- in the parent -----------------------------------------------------------------------------------------------------


class Tries:
    """Runs of one mode, several at a time, each in a fresh folder below ``base``."""

    def __init__(self, mode: str, base: Path) -> None:
        self._mode = mode
        self._base = base
        self._count = 0

    def begin(self, work: Callable[[], int], *, only_first: bool = False) -> Running:
        self._count += 1
        folder = self._base / f"{self._mode}-{self._count}"
        ranks = 2 if self._mode == "ranks" else 1
        processes = []
        for rank in range(ranks):
            own = folder / str(rank)
            own.mkdir(parents=True)
            (own / "train.py").write_text(TRAINING, encoding="utf-8")
            plain = functools.partial(watched, self._mode)
            processes.append(in_fork(plain if only_first and rank else work, own, rank=rank))
        return Running(folder, processes)


class Running:
    def __init__(self, folder: Path, processes: list[int]) -> None:
        self.folder = folder
        self._processes = processes
        self._statuses: dict[int, int | None] = {}
        self._until = time.monotonic() + RUN_S_MAX

    def is_over(self) -> bool:
        for process in self._processes:
            if process not in self._statuses:
                done, status = os.waitpid(process, os.WNOHANG)
                if done:
                    self._statuses[process] = os.waitstatus_to_exitcode(status)
                elif time.monotonic() > self._until:
                    with contextlib.suppress(OSError):
                        os.killpg(process, signal.SIGKILL)
                    os.waitpid(process, 0)
                    self._statuses[process] = None
        return len(self._statuses) == len(self._processes)

    def end(self) -> End:
        while not self.is_over():
            time.sleep(POLL_S)
        outputs = [(self.folder / str(rank) / "out").read_text() for rank in range(len(self._processes))]
        return End(tuple(self._statuses[process] for process in self._processes), tuple(outputs))

    def last_error(self) -> str:
        texts = [(self.folder / str(rank) / "err").read_text() for rank in range(len(self._processes))]
        return next((text.strip().splitlines()[-1][:200] for text in texts if text.strip()), "")


def sweep(mode: str, base: Path, options: argparse.Namespace) -> Iterator[Try]:
    tries = Tries(mode, base)
    expected = tries.begin(lambda: bare(mode)).end()
    if any(expected.statuses):
        raise SystemExit(f"attack_sweep: the training itself fails in the mode {mode}: {expected}")
    listed = base / f"{mode}.json"
    first = tries.begin(lambda: traced(mode, listed if os.environ["RANK"] == "0" else Path("called.json")))
    if first.end() != expected:
        raise SystemExit(f"attack_sweep: watched, the training differs in the mode {mode}: {first.last_error()}")
    names = [name for name in json.loads(listed.read_text()) if options.only in name]
    part, parts = map(int, options.share.split("/"))
    tried = {one["function"] for file in options.but for one in json.loads(file.read_text(encoding="utf-8"))}
    names = [name for name in names if f"{mode} {name}" not in tried]
    waiting, running = names[part - 1 :: parts], {}
    if options.seed is not None:
        random.Random(options.seed).shuffle(waiting)
    until = time.monotonic() + options.seconds
    while waiting or running:
        if time.monotonic() > until:
            waiting = []
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            running[name] = tries.begin(functools.partial(broken, mode, name), only_first=options.first_rank)
        for name, run in list(running.items()):
            if run.is_over():
                del running[name]
                end = run.end()
                note = "" if end == expected else f"{end.statuses}, {run.last_error()}"
                yield Try(f"{mode} {name}", end == expected, note)
                shutil.rmtree(run.folder, ignore_errors=True)
        time.sleep(POLL_S)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mode", choices=MODES, action="append")
    parser.add_argument("--only", default="", metavar="WORD", help="only functions with this word in their name")
    parser.add_argument("--share", default="1/1", metavar="N/M", help="the Nth of M parts")
    parser.add_argument("--first-rank", action="store_true", help="break the function on rank 0 only")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="begin no more of a mode after that time")
    parser.add_argument("--seed", type=int, help="try them in an order drawn with it")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result here too")
    parser.add_argument("--but", type=Path, nargs="*", default=[], metavar="FILE", help="not those of these results")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    import_all()
    found: list[Try] = []
    rows = []
    base = Path(tempfile.mkdtemp(prefix="sweep-"))  # no finalizer, which the forks would run at their exit
    try:
        for mode in options.mode or MODES:
            own = []
            for tried in sweep(mode, base, options):
                own.append(tried)
                if not tried.survived:
                    print(f"FAILED {tried.function}  {tried.note}", flush=True)
            rows.append(f"| a function of ours raises ({mode}) | {len(own)} | {sum(one.survived for one in own)} |")
            found += own
    finally:
        shutil.rmtree(base, ignore_errors=True)
    print("\n| attack | tried | survived |\n|---|---|---|\n" + "\n".join(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(one) for one in found], indent=1), encoding="utf-8")
    return 0 if all(one.survived for one in found) else 1


def import_all() -> None:
    """Import what the runs need, once; every fork has it."""
    import torch.distributed
    import torch.nn.parallel  # noqa: F401

    import steadytrain.attach
    import steadytrain.capture.step.watcher
    import steadytrain.cli.run
    import steadytrain.detection.run_recorder
    import steadytrain.exporters.run_exports
    import steadytrain.grouping.catalog
    import steadytrain.tracing.investigator  # noqa: F401


if __name__ == "__main__":
    sys.exit(main())
