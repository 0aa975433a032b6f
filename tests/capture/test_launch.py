"""A watched script is run as plain Python runs it: name, arguments, path, output, exit status, signals, tracebacks."""

from __future__ import annotations

import shlex
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import warm
from parameters import telling
from scripts import Ended, Entered, Started, bare, command, recorded, run_script, watched, write
from steadytrain.capture.hooks import launch
from steadytrain.capture.incident import source_hashes
from steadytrain.storage.run_folder import open_run

TRAINS = """
import torch
torch.manual_seed(0)
weights = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(weights.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    weights(torch.randn(4, 3)).pow(2).mean().backward()
    optimizer.step()
"""

SETS_UP_TORCH = """
import importlib.util, os, sys
assert importlib.util.find_spec("torch") is not None
assert "torch" not in sys.modules, "the script decides when torch is imported"
os.environ["OMP_NUM_THREADS"] = "2"
"""

LOOKS_AROUND = """
import multiprocessing, os, pickle, sys
print(__name__, flush=True)  # a worker of a pool is ended before it has written what it holds
class Kept:
    value = 3
def work(x):
    return x + 1
def look_around():
    print(sys.argv, __file__, __name__, __package__, __spec__ and __spec__.name, __doc__)
    print(__builtins__ is sys.modules["builtins"])
    print(sys.path[0], [entry for entry in sys.path[1:] if "steadytrain/attach/start" not in entry])
    print(sys.modules["__main__"].__file__, sorted(name for name in globals() if name.startswith("__")))
    print(sys.stdin.read(), os.getcwd(), sys.flags.no_site, sys.orig_argv[-1:])
    import neighbour
    print(pickle.loads(pickle.dumps(Kept())).value, Kept.__module__, Kept.__qualname__)
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(work, [1, 2]))
    sys.stderr.write("to stderr\\n")
if __name__ == "__main__":
    look_around()
"""

WAITS = (
    TRAINS
    + """
import threading, time
# Said from a thread, when the main one has long been asleep: the signal must find it there and not on its way.
announcement = threading.Timer(1.0, print, ["ready"], {"flush": True})
announcement.daemon = True
announcement.start()
try:
    time.sleep(60)
finally:
    print("tidied up", flush=True)
"""
)

HIDES_TORCH = """
import importlib.machinery
find = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name == "torch" else find(name, path, target)
importlib.machinery.PathFinder.find_spec = find_spec
"""


MODULES = ["package", "package.__main__", "package.part"]


@dataclass(frozen=True)
class Ending:
    """A script and how it ends; the ending is compared with that of plain Python."""

    name: str
    source: str
    status: int


ENDINGS = [
    Ending("falls-off-the-end", "print('done')", 0),
    Ending("exit-none", "import sys; sys.exit()", 0),
    Ending("exit-3", "import sys; sys.exit(3)", 3),
    Ending("exit-true", "import sys; sys.exit(True)", 1),
    Ending("exit-256", "import sys; sys.exit(256)", 0),
    Ending("exit-minus-one", "import sys; sys.exit(-1)", 255),
    Ending("exit-text", "import sys; sys.exit('it is over')", 1),
    Ending("os-exit", "import os; os._exit(5)", 5),
    Ending("exception", "def deep():\n    raise ValueError('ünï')\n\n\ndeep()\n", 1),
    Ending("chained", "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error\n", 1),
    Ending("group", "raise ExceptionGroup('several', [ValueError(1), TypeError(2)])\n", 1),
    Ending("excepthook", "import sys\nsys.excepthook = lambda *found: print('hook', found[0])\nraise OSError\n", 1),
    Ending("atexit", "import atexit\natexit.register(print, 'last words')\nraise SystemExit(4)\n", 4),
    Ending("syntax-error-later", "exec('a b')\n", 1),
    Ending("import-error", "import no_such_module_at_all\n", 1),
    Ending("warning", "import warnings\nwarnings.warn('careful')\n", 0),
    Ending("thread-fails", "import threading\nt = threading.Thread(target=lambda: 1 / 0)\nt.start()\nt.join()\n", 0),
    Ending("killed", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", -signal.SIGKILL),
]


@pytest.fixture
def _fresh_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(warm.COLD, "1")


in_a_fresh_interpreter = pytest.mark.usefixtures("_fresh_interpreters")
"""Where it matters what an interpreter has imported, or how it begins."""


@pytest.mark.slow
@in_a_fresh_interpreter
def test_a_script_sees_what_it_sees_under_plain_python(tmp_path: Path) -> None:
    write(tmp_path, "print('neighbour', __name__)\n", "neighbour.py")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.py").symlink_to("elsewhere/../script.py")
    write(tmp_path, LOOKS_AROUND)
    arguments = ["--policy", "mine", "-m", "--", "--help", "-h", "", "a b", "ü"]
    for name in ("script.py", "./script.py", str(tmp_path / "script.py"), "elsewhere/../script.py", "link.py"):
        plain, ours = both(tmp_path, name, *arguments, text="some input")
        assert ours.out == plain.out
        assert ours.own == plain.own == "to stderr\n"
        assert ours.status == plain.status == 0
        assert not ours.warnings


@pytest.mark.slow
@in_a_fresh_interpreter
def test_the_command_itself_starts_scripts_and_modules_in_the_same_way(tmp_path: Path) -> None:
    write(tmp_path, LOOKS_AROUND)
    write(tmp_path, "", "neighbour.py")
    for target in (["script.py"], ["-m", "script"]):
        plain = Started(bare(*target), tmp_path).end()
        ours = Started([str(Path(sys.executable).with_name("steadytrain")), "run", *target], tmp_path).end()
        assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)


@pytest.mark.long
@pytest.mark.slow
@in_a_fresh_interpreter
def test_torch_reads_what_the_script_sets_before_its_import(tmp_path: Path) -> None:
    write(tmp_path, SETS_UP_TORCH + TRAINS + "print(torch.get_num_threads(), torch.__config__.parallel_info())")
    arguments = ["script.py", "--policy", "observe"]
    plain, ours = both(tmp_path, *arguments)
    assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)
    assert not ours.warnings
    run = recorded(tmp_path)
    assert run.scalars().steps.tolist() == [1, 2, 3]
    assert run.description["argv"] == arguments
    assert run.ended == "finished"


@pytest.mark.slow
@in_a_fresh_interpreter
@pytest.mark.parametrize("module", telling(MODULES, ["package", "package.part"]))
def test_a_module_is_run_as_python_m_runs_it(module: str, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    write(package, "print('imported', __name__)\n", "__init__.py")
    write(
        package,
        "from . import part\nimport sys\nprint(sys.argv, __name__, __package__, sys.path[0])\n" + TRAINS,
        "__main__.py",
    )
    write(package, "print('part', __name__, __file__)\n", "part.py")
    plain = Started(bare("-m", module, "-m", "x"), tmp_path).end()
    ours = Started(watched("-m", module, "-m", "x"), tmp_path).end()
    assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)
    assert not ours.warnings


ALIKE = {"exit-none", "exit-true", "exit-256", "chained", "syntax-error-later", "import-error"}
"""Exit statuses and tracebacks beside others."""


@pytest.mark.slow
@in_a_fresh_interpreter
@pytest.mark.parametrize("ending", telling(ENDINGS, {one.name for one in ENDINGS} - ALIKE, lambda one: one.name))
def test_a_script_ends_as_under_plain_python(ending: Ending, tmp_path: Path) -> None:
    write(tmp_path, ending.source)
    plain, ours = both(tmp_path, "script.py")
    assert plain.status == ending.status
    assert ours.status == plain.status
    assert ours.out == plain.out
    assert ours.own == plain.own
    # Nothing was recorded. Only a process that leaves past everybody leaves the folder that it had taken, empty.
    left = [path.relative_to(tmp_path).as_posix() for path in tmp_path.glob("runs/**/*")]
    assert left == (["runs/run"] if ending.name in ("os-exit", "killed") else [])


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_ends_a_script_as_it_ends_plain_python(number: signal.Signals, tmp_path: Path) -> None:
    write(tmp_path, WAITS)
    endings = []
    for line in (bare("script.py"), watched("script.py")):
        started = Started(line, tmp_path)
        assert started.process.stdout is not None
        assert started.process.stdout.readline() == "ready\n"
        started.process.send_signal(number)
        endings.append(started.end())
    plain, ours = endings
    assert plain.status == -number
    assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)
    assert recorded(tmp_path).ended == ("interrupted" if number == signal.SIGINT else None)


@pytest.mark.slow
def test_a_script_that_fails_after_steps_ends_as_it_would_and_says_so_in_its_run(tmp_path: Path) -> None:
    write(tmp_path, TRAINS + "raise ValueError('no more data')\n")
    plain, ours = both(tmp_path, "script.py")
    assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)
    run = recorded(tmp_path)
    assert (run.ended, run.facts["exit_status"]) == ("failed", 1)


@pytest.mark.long
@pytest.mark.slow
@in_a_fresh_interpreter
@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("print('no torch')", "no PyTorch training was seen: the script never imported torch"),
        ("import torch; print(torch.ones(2).sum())", "no backward pass and no optimizer step was seen"),
        (
            "import torch\nw = torch.ones(2, requires_grad=True)\n"
            "for _ in range(5):\n    g, = torch.autograd.grad(w.pow(2).sum(), w)\n    w.data -= 0.1 * g\n"
            "print(w)\nraise SystemExit(3)",
            "script.py:4, and no torch.optim optimizer made this update: it is made by hand",
        ),
    ],
    ids=["no-torch", "no-training", "update-by-hand"],
)
def test_a_script_that_gives_nothing_to_watch_is_told_so_and_leaves_no_run(
    source: str, told: str, tmp_path: Path
) -> None:
    write(tmp_path, source)
    plain, ours = both(tmp_path, "script.py")
    assert (ours.status, ours.out, ours.own) == (plain.status, plain.out, plain.own)
    assert told in ours.told
    assert not ours.warnings
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["missing.py"], "missing.py: no such script"),
        (["."], ".: this is a folder"),
        (["broken.py"], "broken.py:2: syntax error"),
        (["binary.py"], "binary.py: not Python source"),
        (["latin.py"], "latin.py: not Python source"),
        (["-m", "no_such_module"], "no_such_module: no such module"),
        (["-m", "no_such.module"], "no_such.module: no such module"),
        (["--policy", "pray", "good.py"], "'pray': no such policy; one of observe, stop, skip, steady"),
        (["--level", "lots", "good.py"], "'lots': no such level; one of light, standard, full"),
        (["--policy"], "--policy"),
        (["--state-mb", "-1", "good.py"], "--state-mb -1: must not be negative; 0 stores no state"),
        (["--state-mb", "many", "good.py"], "many"),
        (["--name", "a/b", "good.py"], "'a/b': a run's name is one plain folder name"),
        (["--name", "a\n::error::b", "good.py"], "'a\\n::error::b': a run's name is one plain folder name"),
        (["--on-incident", "", "good.py"], "the command is empty; is the variable set that it comes from?"),
        (["--runs-dir", "good.py", "good.py"], "good.py: not a folder"),
        (["--no-such-option", "good.py"], "--no-such-option"),
        ([], "SCRIPT"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_command_is_one_line_and_nothing_is_run(
    arguments: list[str], told: str, tmp_path: Path, entered: Entered
) -> None:
    write(tmp_path, "print('ran')", "good.py")
    write(tmp_path, "x = 1\ny = = 2\n", "broken.py")
    (tmp_path / "binary.py").write_bytes(b"\x7fELF\x02\x01\0\0")
    (tmp_path / "latin.py").write_bytes("x = 'é'".encode("latin-1"))
    before = sorted(tmp_path.iterdir())
    status, out, err = entered("run", *arguments, folder=tmp_path)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("steadytrain: ")
    assert told in err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.slow
@in_a_fresh_interpreter
def test_without_torch_it_says_so_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "path").mkdir()
    write(tmp_path / "path", HIDES_TORCH, "sitecustomize.py")
    write(tmp_path, "print('ran')")
    ended = Started(watched("script.py"), tmp_path, environment={"PYTHONPATH": str(tmp_path / "path")}).end()
    assert (ended.status, ended.out, ended.own) == (2, "", "")
    assert "run needs PyTorch" in ended.told
    assert sys.executable in ended.told
    assert ended.told.count("\n") == 1


def both(folder: Path, *arguments: str, text: str = "", policy: str = "stop") -> tuple[Ended, Ended]:
    """Bare and under watch, side by side."""
    plain = Started(bare(*arguments), folder, text=text)
    ours = Started(watched(*arguments, policy=policy), folder, text=text)
    return plain.end(), ours.end()


BAR = """
    import torch
    from tqdm import tqdm

    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in tqdm(range(9)):
        loss = model(torch.full((4, 2), float("nan") if step == 5 else 1.0)).sum()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.slow
def test_a_message_beside_a_progress_bar_begins_on_a_line_of_its_own(tmp_path: Path) -> None:
    pytest.importorskip("tqdm")
    outcome = run_script(tmp_path, BAR)
    assert outcome.status == 70, outcome.err
    assert "\nsteadytrain: STOPPED before the update of step 6" in outcome.err


@pytest.mark.slow
def test_the_line_that_says_where_to_look_can_be_typed(tmp_path: Path) -> None:
    folder = tmp_path / "my runs [1]"
    folder.mkdir()
    ours = Started(watched(write(folder, TRAINS)), folder).end()
    (line,) = [line for line in ours.told.splitlines() if "steadytrain show" in line]
    assert shlex.split(line.partition("next: ")[2])[-1] == str(folder / "runs" / "run")


@pytest.mark.slow
def test_runs_that_begin_at_the_same_time_have_a_folder_each(tmp_path: Path) -> None:
    line = command("run", "--runs-dir", "runs", write(tmp_path, TRAINS))
    started = [Started(line, tmp_path) for _ in range(3)]
    assert [one.end().status for one in started] == [0, 0, 0]
    folders = list((tmp_path / "runs").iterdir())
    assert [len(open_run(folder).scalars()) for folder in folders] == [3, 3, 3]


@pytest.mark.slow
def test_a_script_that_trains_nothing_leaves_no_folder(tmp_path: Path) -> None:
    for source in ("print('nothing')", "import torch", "raise SystemExit(3)"):
        Started(watched(write(tmp_path, source)), tmp_path).end()
        assert not (tmp_path / "runs").exists()


OURS = """
def ours(call=None):
    call() if call else interrupted()

def interrupted():
    raise KeyboardInterrupt
"""


@pytest.mark.parametrize("of_script", [False, True])
def test_an_interrupt_inside_of_ours_ends_at_the_call_of_the_script(
    of_script: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in code of the script that ours calls (a hook, a closure) ends there."""
    namespace: dict[str, Any] = {}
    exec(compile(OURS, launch.__file__, "exec"), namespace)
    monkeypatch.setattr(source_hashes, "is_library", lambda file: file == launch.__file__)

    def hook() -> None:
        raise KeyboardInterrupt

    def script() -> None:
        namespace["ours"](hook if of_script else None)

    try:
        script()
    except KeyboardInterrupt as error:
        launch._show(error)
    printed = capsys.readouterr().err.splitlines()
    assert printed[-1] == "KeyboardInterrupt"
    places = [line.rpartition(" in ")[2] for line in printed if line.startswith("  File")]
    assert places[-1] == ("hook" if of_script else "script")
