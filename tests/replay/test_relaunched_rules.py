"""What a relaunched script is refused: programs, hosts, files and signals elsewhere; what its command says of it."""

from __future__ import annotations

import ast
import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import steadytrain
from steadytrain.replay import file_sandbox, step_bound, written_files
from steadytrain.replay.audit_rules import AuditRules
from steadytrain.replay.file_mirror import FileMirror
from steadytrain.replay.native_files import refuse_attaching
from steadytrain.replay.offline import go_offline, is_local
from steadytrain.replay.own_processes import OwnProcesses
from steadytrain.replay.programs import NETWORK_VARIABLE, SANDBOX_VARIABLE, refusal

PACKAGE = Path(steadytrain.__file__).parent


@pytest.mark.parametrize(
    "words",
    [
        ["sbatch", "job.sh"],
        ["/usr/bin/qsub", "job.sh"],
        ["nohup", "aws", "s3", "cp", "ckpt.pt", "s3://bucket"],
        ["bash", "-c", "cd x && sbatch next.sh"],
        ["sh", "-c", "VAR=1 timeout 5 kubectl apply -f job.yaml"],
        [b"sh", b"-c", b"ls; rsync -a out host:"],
        ["git", "push"],
        ["git", "-C", "x", "commit", "-m", "y"],
        ["curl", "-T", "ckpt.pt", "https://host"],
        ["ray", "job", "submit"],
        ["chmod", "600", "ckpt.pt"],
        [sys.executable, "-I", "-c", "import socket"],
        ["bash", "-c", "echo step > /dev/udp/127.0.0.1/9"],
        ["sh", "-c", "touch ckpt.pt"],
        "scancel",
    ],
)
def test_jobs_and_uploads_are_never_started(words: object) -> None:
    assert refusal(words, None, can_write=False) is not None
    assert refusal(words, None, can_write=True) is not None


@pytest.mark.parametrize(
    "words",
    [
        ["nvidia-smi", "-L"],
        ["git", "rev-parse", "HEAD"],
        ["git", "-c", "a.b=c", "status"],
        ["sh", "-c", "uname -a 2>/dev/null | head -1"],
        ["/usr/bin/gcc", "-shared", "x.c"],
        [sys.executable, "-u", "worker.py"],
        ["git", "config", "user.name"],
        ["git", "config", "--get", "remote.origin.url", "x"],
        ["git", "remote", "get-url", "origin"],
        ["git", "branch", "--show-current"],
        ["sort", "-u", "a.txt", "b.txt"],
        ["cat", "/dev/shm/data.txt"],
        [sys.executable, "worker.py", "--out", "/dev/shm/x"],
    ],
)
def test_programs_that_read_are_started(words: list[str]) -> None:
    assert refusal(words, None, can_write=False) is None
    assert refusal(words, None, can_write=True) is None


@pytest.mark.parametrize(
    "words",
    [
        ["cp", "a", "/dev/shm/b"],
        ["sh", "-c", "echo x >/dev/shm/ckpt.txt"],
        ["dd", "if=a", "of=/dev/shm/b"],
        [sys.executable, "-I", "-c", "open('/dev/shm/b', 'w')"],
    ],
)
def test_no_program_writes_to_files_of_others_in_shared_memory(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NETWORK_VARIABLE, "1")  # else Python without the start hook is not started at all
    assert refusal(words, None, can_write=False, own=("/dev/", "/dev/shm/scratch/")) is not None
    own = [word.replace("/dev/shm/", "/dev/shm/scratch/") for word in words]
    assert refusal(own, None, can_write=False, own=("/dev/shm/scratch/",)) is None


@pytest.mark.parametrize(
    "words",
    [
        ["cp", "a", "b"],
        ["sh", "-c", "echo x > ckpt.txt"],
        ["sh", "-c", "ls $(rm x)"],
        ["./own-program"],
        [sys.executable, "-I", "-c", "pass"],
        [sys.executable, "-uS", "x.py"],
        ["sort", "-uo", "a.txt", "b.txt"],
        ["uniq", "a.txt", "b.txt"],
        ["git", "config", "user.name", "x"],
        ["git", "-C", "x", "branch", "new"],
        ["git", "diff", "--output=ckpt.txt"],
    ],
)
def test_programs_that_may_write_need_a_kernel_that_forbids_it(
    words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(NETWORK_VARIABLE, "1")
    assert refusal(words, None, can_write=False) is None
    assert refusal(words, None, can_write=True) is not None


def test_a_python_process_without_the_variable_of_the_sandbox_is_not_started() -> None:
    words = [sys.executable, "x.py"]
    assert refusal(words, {SANDBOX_VARIABLE: "{}"}, can_write=True) is None
    assert refusal(words, {"PATH": "/bin"}, can_write=True) is not None


def test_only_this_machine_is_local() -> None:
    here = [("127.0.0.1", 1), ("::1", 1, 0, 0), ("localhost", 1), ("", 1), ("0.0.0.0", 1), "/tmp/socket", None]
    assert all(map(is_local, here))
    assert is_local((socket.gethostname(), 1))
    assert not any(map(is_local, [("192.0.2.1", 80), ("wandb.ai", 443), ("2001:db8::1", 80, 0, 0), ("8.8.8.8", 53)]))


def test_trackers_are_off_also_with_a_network(tmp_path: Path) -> None:
    offline: dict[str, str] = {}
    assert not go_offline(tmp_path, offline)
    online = {NETWORK_VARIABLE: "1"}
    assert go_offline(tmp_path, online)
    assert offline["WANDB_MODE"] == online["WANDB_MODE"] == "disabled"
    assert offline["MLFLOW_TRACKING_URI"] == online["MLFLOW_TRACKING_URI"] == (tmp_path / "mlflow").as_uri()
    assert offline["HF_HUB_OFFLINE"] == "1"
    assert "HF_HUB_OFFLINE" not in online


def test_mlflow_does_not_go_to_a_server_that_the_script_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    module = SimpleNamespace(set_tracking_uri=called.append, set_registry_uri=called.append)
    monkeypatch.setitem(sys.modules, "mlflow", module)
    go_offline(tmp_path, {})
    module.set_tracking_uri("http://localhost:5000")
    assert not called


def test_tensorboard_writes_no_events_and_has_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(EventFileWriter=None)
    monkeypatch.setitem(sys.modules, "tensorboardX.event_file_writer", module)
    go_offline(tmp_path, {})
    threads = threading.active_count()
    writer: Any = module.EventFileWriter(str(tmp_path / "runs" / "one"), 10, 120, filename_suffix="")
    for _ in range(30):
        writer.add_event(object())
    writer.flush()
    writer.close()
    assert threading.active_count() == threads
    assert Path(writer.get_logdir()).is_dir()
    assert not list(Path(writer.get_logdir()).iterdir())


def rules(writable: Path, *, kernel: bool = True, network: bool = False) -> AuditRules:
    def resolve(path: object, folder: int | None = None, *, follow: bool = True) -> str:
        return os.path.realpath(os.fsdecode(path))  # type: ignore[arg-type]

    own = OwnProcesses("")
    return AuditRules((f"{writable}{os.sep}",), resolve, has_kernel_rule=kernel, has_network=network, own=own)


@contextmanager
def other_session() -> Iterator[int]:
    """The number of a process in a session of its own (process 1 can be in ours: in a container, for one)."""
    words = [sys.executable, "-c", "import sys; sys.stdin.read()"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True) as started:
        yield started.pid


def test_writing_elsewhere_is_refused_whatever_calls_it(tmp_path: Path) -> None:
    inside, outside = tmp_path / "scratch", tmp_path / "theirs"
    check = rules(inside).check
    for event, before, after in (
        ("open", (), ("w", os.O_WRONLY | os.O_CREAT)),
        ("open", (), (None, os.O_RDWR)),
        ("os.truncate", (), (0,)),
        ("os.remove", (), (-1,)),
        ("os.rename", (), (str(inside / "x"), -1, -1)),
        ("os.rename", (str(inside / "x"),), (-1, -1)),
        ("os.link", (str(inside / "x"),), (-1, -1)),
        ("os.symlink", (str(inside / "x"),), (-1,)),
        ("os.mkdir", (), (0o777, -1)),
        ("os.chmod", (), (0o777, -1)),
        ("os.chown", (), (0, 0, -1)),
        ("sqlite3.connect", (), ()),
    ):
        check(event, (*before, str(inside / "file"), *after))
        with pytest.raises(PermissionError, match="scratch folder"):
            check(event, (*before, str(outside), *after))


def test_mode_and_times_of_a_file_that_is_only_read_stay(tmp_path: Path) -> None:
    inside, outside = tmp_path / "scratch", tmp_path / "theirs"
    inside.mkdir()
    for file in (inside / "file", outside):
        file.write_text("x")
    check = rules(inside).check
    with (inside / "file").open() as own, outside.open() as theirs, os.fdopen(os.memfd_create("memory"), "w") as none:
        for event, after in (("os.chmod", (0o777, -1)), ("os.utime", (None, None, -1)), ("os.setxattr", ("user.a",))):
            check(event, (own.fileno(), *after))
            check(event, (none.fileno(), *after))
            with pytest.raises(PermissionError, match="scratch folder"):
                check(event, (theirs.fileno(), *after))
    check("open", (str(outside), "r", os.O_RDONLY))
    check("open", (3, "w", os.O_WRONLY))
    check("sqlite3.connect", (":memory:",))


def test_hosts_signals_and_c_functions(tmp_path: Path) -> None:
    check = rules(tmp_path).check
    check("socket.connect", (None, ("127.0.0.1", 29500)))
    check("os.kill", (os.getpid(), 15))
    check("os.kill", (os.getppid(), 0))
    check("ctypes.dlsym", (None, "rename"))
    with pytest.raises(OSError, match="--allow-network"):
        check("socket.connect", (None, ("192.0.2.1", 443)))
    with other_session() as stranger, pytest.raises(ProcessLookupError):
        check("os.kill", (stranger, 15))
    with pytest.raises(ProcessLookupError):
        check("os.kill", (-1, 15))
    rules(tmp_path, network=True).check("socket.connect", (None, ("192.0.2.1", 443)))
    with pytest.raises(PermissionError, match=r"rename\(\)"):
        rules(tmp_path, kernel=False).check("ctypes.dlsym", (None, "rename"))
    with pytest.raises(PermissionError, match=r"chmod\(\)"):
        check("ctypes.dlsym", (None, "chmod"))  # Landlock does not forbid it


def test_a_statement_opens_no_database_of_the_users(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with closing(sqlite3.connect(":memory:")) as database:
        refuse_attaching(database, FileMirror(tmp_path / "mirror", writable=(scratch,)))
        database.execute("CREATE TABLE t (x)")
        for statement in ("ATTACH '{}/theirs.db' AS u", "VACUUM INTO '{}/copy.db'", "ATTACH 'file:{}/theirs.db' AS v"):
            with pytest.raises(sqlite3.DatabaseError, match="authoriz"):
                database.execute(statement.format(tmp_path))
        database.execute(f"VACUUM INTO '{scratch}/copy.db'")
        database.execute("ATTACH ':memory:' AS w")
    assert [path.name for path in tmp_path.iterdir()] == ["scratch"]


def test_a_compiler_cache_that_holds_the_users_files_is_not_writable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, cache = tmp_path / "work", tmp_path / "work" / "cache"
    cache.mkdir(parents=True)
    monkeypatch.chdir(work)
    for variable, folder in (("A", tmp_path), ("B", work), ("C", cache)):
        monkeypatch.setenv(variable, str(folder))
    assert list(file_sandbox._folders(dict.fromkeys("ABC", ""))) == [cache]


def test_one_line_says_what_was_written_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert written_files.take_line() is None
    mirror = tmp_path / "scratch" / "written-7"
    for name in ("a.pt", "b.pt", "c.pt", "d/e.pt"):
        file = Path(f"{mirror}{tmp_path}") / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
    written_files.note_written(tmp_path / "scratch")
    expected = "4 files were written to a scratch folder instead of a.pt, b.pt, c.pt and 1 more; yours are unchanged"
    assert written_files.take_line() == expected
    assert written_files.take_line() is None


def test_a_script_that_never_reaches_its_last_step_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(status: int) -> None:
        raise SystemExit(status)

    monkeypatch.setattr(step_bound, "_exit", ends)
    gates, told = [], []
    observer = SimpleNamespace(gates_max=3, gate=lambda *args: gates.append(args))
    followed = step_bound.bounded(observer, told.append)  # type: ignore[type-var]
    for number in range(3):
        followed.gate(number)
    with pytest.raises(SystemExit):
        followed.gate(3)
    assert len(gates) == 3
    assert "made 3 optimizer steps" in told[0]


RUNS_SCRIPTS = {
    "attach/launched_script.py": "the watched run itself; `debug` sets the scratch folder",
    "preflight_runs/session.py": "in a copy of the process",
    "replay/command_runner.py": "all commands that launch a recorded script",
}
STARTS_PROCESSES = {
    "attach/launched_script.py": "",
    "capture/incident/git.py": "git, read only",
    "checks/model/data_parallel_equivalence.py": "a copy of the checked process",
    "cli/_top_under.py": "`steadytrain top`, which draws",
    "cli/run.py": "the command again, with seeded hashes",
    "exporters/after_run.py": "the exporter of `steadytrain export`",
    "exporters/alerts/command_call.py": "the command of --on-incident, by the exporter process of a watched run",
    "exporters/alerts/url_check.py": "a look at Apprise's services",
    "exporters/exporter_process.py": "the exporter of a watched run",
    "live/served/diagnosing.py": "`steadytrain diagnose`, which refuses what is not trusted",
    "preflight_runs/process_copy.py": "sandboxed: session.py",
    "replay/bisection.py": "git, and `steadytrain replay`",
    "replay/child_processes.py": "the launch of all commands",
    "trial_runs/patched_files.py": "git, read only",
    "trial_runs/process_copy.py": "a copy of a sandboxed process",
    "trial_runs/server.py": "the process of a stage: run_followed",
    "trial_runs/server_process.py": "the server",
    "replay/devices.py": "nvidia-smi, which lists GPUs",
    "trial_runs/slurm_engine.py": "srun with remote_worker.py, whose pool launches as one here does",
    "trial_runs/stage.py": "a copy of a sandboxed process",
}
STARTERS = {("os", "fork"), ("os", "execv"), ("os", "posix_spawn"), ("os", "system")}
STARTERS |= {("subprocess", name) for name in ("run", "Popen", "call", "check_output", "check_call")}


def test_every_command_that_runs_the_script_again_goes_through_the_sandbox() -> None:
    runs, starts = set(), set()
    for path in PACKAGE.rglob("*.py"):
        name, text = path.relative_to(PACKAGE).as_posix(), path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "execute":
                runs.add(name)
                assert "protect_files(" in text, f"{name} runs a script outside of the sandbox"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = node.func.value
                if isinstance(owner, ast.Name) and (owner.id, node.func.attr) in STARTERS:
                    starts.add(name)
    assert runs == RUNS_SCRIPTS.keys()
    assert starts <= STARTS_PROCESSES.keys(), "a new place that starts processes: does it run a script of the user?"
