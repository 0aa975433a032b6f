"""Files of a launched script: it reads back what it has written, and what lay there before stays as it is."""

from __future__ import annotations

import hashlib
import os
import sys
import textwrap
from pathlib import Path

import pytest

from scripts import Started, bare, command, write
from steadytrain.replay.landlock import SWITCH, forbid_writing, kernel_version

SEEN = """
import glob, os, pathlib, shutil, sqlite3, sys

def seen(folder="."):
    for at, folders, files in sorted(os.walk(folder)):
        print("folder", at, sorted(folders))
        for name in sorted(files):
            path = os.path.join(at, name)
            print(path, os.path.islink(path), os.path.isfile(path) and open(path, "rb").read())

def attempt(call, *args, **kwargs):
    try:
        print("done", call.__name__, call(*args, **kwargs))
    except OSError as error:
        print(type(error).__name__, error)

here = pathlib.Path.cwd()
"""

WAYS = {
    "tokenizers": """
        from tokenizers import Tokenizer, models, pre_tokenizers, trainers
        pathlib.Path("words.txt").write_text("one two two three")
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
        tokenizer.train(["words.txt"], trainers.BpeTrainer(vocab_size=12, show_progress=False))
        tokenizer.save("old.txt", False)
        os.makedirs("new/deep")
        tokenizer.save(path="new/deep/tokenizer.json")
        print(Tokenizer.from_file("new/deep/tokenizer.json").get_vocab_size(), Tokenizer.from_file("old.txt").to_str())
        tokenizer.model.save("new")
        tokenizer.model.save("folder", "bpe")
        print(Tokenizer(models.BPE.from_file("new/vocab.json", "new/merges.txt")).to_str())
        print(len(models.BPE.read_file(vocab="folder/bpe-vocab.json", merges="folder/bpe-merges.txt")))
    """,
    "pyarrow": """
        import pyarrow, pyarrow.parquet
        table = pyarrow.table({"a": [1, 2]})
        os.mkdir("new")
        for place in ("new/table.parquet", "old.txt"):
            pyarrow.parquet.write_table(table, place)
            print(pyarrow.parquet.read_table(place), pyarrow.parquet.ParquetFile(place).metadata.num_rows)
        with pyarrow.create_memory_map("new/mapped", 8) as mapped:
            mapped.write(b"x" * 8)
        with pyarrow.memory_map("new/mapped") as mapped:
            print(mapped.read())
    """,
    "arrow": """
        import pyarrow, pyarrow.csv, pyarrow.feather
        table = pyarrow.table({"a": [1, 2]})
        pyarrow.csv.write_csv(table, "old.txt")
        pyarrow.feather.write_feather(table, "old.bin")
        print(open("old.txt").read(), len(open("old.bin", "rb").read()))
        for mode in ("wb", "ab"):
            with pyarrow.OSFile("folder/one.txt", mode) as file: file.write(b"1")
        with pyarrow.OSFile("folder/one.txt") as file: print(file.read())
        with pyarrow.output_stream("new.bin") as file: file.write(b"2")
        for name in ("old.bin", "old.txt"): os.remove(name)
    """,
    "torch": """
        import torch
        from torch.profiler import ProfilerActivity, profile
        scripted = torch.jit.script(torch.nn.Linear(2, 2))
        function = torch.jit.trace(torch.sin, torch.ones(2))
        for place, saved in (("old.txt", scripted), ("folder/one.txt", scripted._c), ("new.pt", function)):
            saved.save(place)
            print(type(torch.jit.load(place)).__name__)
        scripted._save_for_lite_interpreter("old.bin")
        print(open("old.bin", "rb").read()[:2])
        with profile(activities=[ProfilerActivity.CPU]) as seen_by: torch.ones(2)
        seen_by.export_chrome_trace("folder/inner/two.txt")
        print(open("folder/inner/two.txt").read(1))
        store = torch.distributed.FileStore("store", 1)
        store.set("a", "b")
        print(store.get("a"), os.path.isfile("store"))
        del store
        for name in ("old.bin", "old.txt", "folder/one.txt", "new.pt", "folder/inner/two.txt"): os.remove(name)
    """,
    "temporary files": """
        import os, tempfile
        for make in (tempfile.TemporaryFile, tempfile.NamedTemporaryFile):
            with make(dir="folder", mode="w+") as file:
                file.write("temporary")
                file.seek(0)
                print(file.read())
        def opener(path, flags):
            return os.open(path, flags | os.O_TRUNC, 0o600)
        with open("old.txt", "w", opener=opener) as file:
            file.write("new text")
        print(open("old.txt").read(), sorted(os.listdir("folder")))
    """,
    "descriptors": """
        with open("old.txt") as file:
            os.fchmod(file.fileno(), 0o600)
            os.utime(file.fileno(), (1, 1))
            os.chown(file.fileno(), os.getuid(), os.getgid())
            os.fchown(file.fileno(), os.getuid(), os.getgid())
        with open("new.txt", "w") as file: os.fchmod(file.fileno(), 0o640)
        print(oct(os.stat("new.txt").st_mode))
    """,
    "open": """
        open("old.txt", "a").write("more")
        open("new.txt", "w").write("one")
        with open("old.txt", "r+") as file:
            file.seek(1)
            file.write("?")
            file.seek(0)
            print(file.read())
        attempt(open, "old.txt", "x")
        attempt(open, "none/file", "w")
        attempt(open, "gone.txt")
        descriptor = os.open("old.bin", os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, b"x")
        os.close(descriptor)
        attempt(os.open, "old.txt", os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        os.truncate("old.txt", 2)
    """,
    "replace": """
        pathlib.Path("tmp.txt").write_text("new")
        os.replace("tmp.txt", "old.txt")
        os.rename("old.bin", "folder/moved.bin")
        attempt(os.rename, "nothing", "x")
        os.rename("folder", "renamed")
        attempt(os.listdir, "folder")
        os.mkdir("folder")
        pathlib.Path("folder/again").write_text("again")
        shutil.move("renamed/inner", "folder/inner2")
        shutil.copy("old.txt", "copy.txt")
        shutil.copytree("folder", "twice")
    """,
    "remove": """
        os.remove("old.txt")
        attempt(os.remove, "old.txt")
        attempt(open, "old.txt")
        attempt(os.rmdir, "folder")
        shutil.rmtree("folder")
        attempt(os.listdir, "folder")
        print(os.path.exists("folder"), glob.glob("**", recursive=True) == sorted(os.listdir(".")))
        pathlib.Path("old.txt").write_text("anew")
        os.unlink("latest")
        os.symlink("old.txt", "latest")
        attempt(os.mkdir, "link-to-folder")
        os.makedirs("a/b/c", exist_ok=True)
        os.makedirs("a/b", exist_ok=True)
        os.rmdir("a/b/c")
        os.link("old.txt", "hard.txt")
        print(os.path.samefile("old.txt", "hard.txt"))
    """,
    "links": """
        open("latest", "w").write("through the link")
        open("link-to-folder/new", "w").write("in the folder")
        print(sorted(os.listdir("link-to-folder")), os.path.realpath("latest") == str(here / "old.txt"))
        os.makedirs("made/deep")
        os.chdir("made/deep")
        open("file", "w").write("deep")
        print(os.getcwd() == str(here / "made/deep"))
        print(open("../../old.bin", "rb").read(), sorted(os.listdir("..")))
        print(os.path.abspath("file") == str(here / "made/deep/file"))
        os.chdir("../..")
        os.utime("old.bin")
        os.chmod("old.bin", 0o600)
        os.mkfifo("pipe")
        attempt(os.mkfifo, "pipe")
        os.remove("pipe")
    """,
    "libraries": """
        import numpy, torch
        import safetensors.torch
        torch.save({"w": torch.ones(2)}, "old.bin")
        print(torch.load("old.bin"), torch.load("old.bin", mmap=True))
        torch.save(torch.ones(2), pathlib.Path("new.pt"))
        os.replace("new.pt", "old.txt")
        print(torch.load("old.txt"))
        safetensors.torch.save_file({"w": torch.ones(2)}, "folder/inner/w.safetensors")
        print(safetensors.torch.load_file("folder/inner/w.safetensors"))
        print(numpy.save("new", numpy.ones(2)), numpy.load("new.npy"))
        numpy.memmap("old.bin", numpy.float32, "w+", shape=(2,))[:] = 3
        print(numpy.fromfile("old.bin", numpy.float32))
        numpy.ones(2).tofile("array")
        print(numpy.fromfile("array"))
        base = sqlite3.connect("base.sqlite")
        base.execute("CREATE TABLE t (x)")
        base.execute("INSERT INTO t VALUES (1)")
        base.commit()
        for name, how in (("base.sqlite", {}), ("file:base.sqlite?mode=ro", {"uri": True})):
            print(sqlite3.connect(name, **how).execute("SELECT * FROM t").fetchall())
        os.remove("base.sqlite")
        for name in ("old.bin", "old.txt", "folder/inner/w.safetensors", "new.npy", "array"): os.remove(name)
    """,
}
UNDER = """
import sys
from pathlib import Path
from steadytrain.replay.file_sandbox import protect_files
sandbox = protect_files(Path(sys.argv[1]))
exec(compile(Path("script.py").read_text(), "script.py", "exec"))
"""


def furnished(folder: Path) -> Path:
    (folder / "folder" / "inner").mkdir(parents=True)
    (folder / "folder" / "one.txt").write_text("one")
    (folder / "folder" / "inner" / "two.txt").write_text("two")
    (folder / "old.txt").write_text("old text")
    (folder / "old.bin").write_bytes(b"old bytes")
    (folder / "latest").symlink_to("old.txt")
    (folder / "link-to-folder").symlink_to("folder")
    return folder


def inventory(folder: Path) -> dict[str, tuple[object, ...]]:
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        state = path.lstat()
        content = (
            os.readlink(path) if path.is_symlink() else path.is_file() and hashlib.sha256(path.read_bytes()).digest()
        )
        found[str(path.relative_to(folder))] = (state.st_mode, state.st_mtime_ns, content)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_a_script_sees_what_it_wrote_and_its_files_stay(way: str, tmp_path: Path) -> None:
    sees_and_keeps(way, tmp_path, switch="")


@pytest.mark.slow
@pytest.mark.parametrize("way", ["arrow", "descriptors", "torch"])
def test_native_libraries_are_redirected_without_the_kernel_too(way: str, tmp_path: Path) -> None:
    sees_and_keeps(way, tmp_path, switch="off")


def sees_and_keeps(way: str, tmp_path: Path, *, switch: str) -> None:
    outputs = []
    for name, line in (("bare", bare("script.py")), ("kept", bare("under.py", str(tmp_path / "scratch")))):
        folder = furnished(tmp_path / name)
        write(folder, SEEN + textwrap.dedent(WAYS[way]) + "\nseen()\n")
        write(folder, UNDER, "under.py")
        before = inventory(folder)
        ended = Started(line, folder, environment={SWITCH: switch}).end()
        assert ended.status == 0, ended.err
        outputs.append(ended.out)
        assert (inventory(folder) == before) == (name == "kept")
    assert outputs[0] == outputs[1]


COPIES = """
import os, sys
from pathlib import Path
from steadytrain.replay.file_sandbox import keep_files, protect_files, restore_files
protect_files(Path(sys.argv[1]))
log = open("log.txt", "a", buffering=1)
log.write("before\\n")
os.makedirs("made/deep")
os.symlink("old.txt", "link")
os.mkfifo("pipe")
keep_files(Path(sys.argv[1]) / "kept")
for number in range(2):
    child = os.fork()
    if child == 0:
        log.write(f"copy {number}\\n")
        print(open("log.txt").read().split(), len(os.listdir(".")), os.path.isdir("made/deep"), flush=True)
        os.removedirs("made/deep")
        os.remove("link")
        os.remove("pipe")
        os.mkdir("more")
        Path("more/file").write_text("x")
        Path("old.txt").write_text("changed")
        os._exit(0)
    os.waitpid(child, 0)
    restore_files()
print(open("log.txt").read().split(), open("old.txt").read(), os.path.exists("more"), os.readlink("link"))
"""


@pytest.mark.slow
def test_what_a_copy_of_the_process_wrote_is_undone(tmp_path: Path) -> None:
    folder = furnished(tmp_path / "kept")
    write(folder, COPIES, "under.py")
    before = inventory(folder)
    ended = Started(bare("under.py", str(tmp_path / "scratch")), folder).end()
    expected = [
        "['before', 'copy', '0'] 10 True",
        "['before', 'copy', '1'] 10 True",
        "['before'] old text False old.txt",
    ]
    assert ended.out.splitlines() == expected, ended.err
    assert inventory(folder) == before


@pytest.mark.slow
@pytest.mark.skipif(kernel_version() < 1, reason="this kernel has no Landlock")
def test_programs_that_a_script_starts_cannot_write_either(tmp_path: Path) -> None:
    write(
        furnished(tmp_path / "kept"),
        "import subprocess\nprint(subprocess.run(['cp', 'old.bin', 'old.txt']).returncode)",
    )
    write(tmp_path / "kept", UNDER, "under.py")
    before = inventory(tmp_path / "kept")
    ended = Started(bare("under.py", str(tmp_path / "scratch")), tmp_path / "kept").end()
    assert ended.out == "1\n", ended.err
    assert inventory(tmp_path / "kept") == before


def test_nothing_is_forbidden_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not forbid_writing([])


SAVES_OVER = """
import os, sys, torch
bad, steps = int(sys.argv[1]), int(sys.argv[2])
torch.manual_seed(0)
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
start = 0
if os.path.exists("checkpoint.pt"):
    loaded = torch.load("checkpoint.pt")
    model.load_state_dict(loaded["model"]); optimizer.load_state_dict(loaded["optimizer"]); start = loaded["step"]
generator = torch.Generator().manual_seed(start)
for step in range(start, steps):
    batch = torch.randn(16, 8, generator=generator)
    if step == bad:
        batch[3, 2] = float("nan")
    loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    if step % 10 == 9:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}, "new.pt")
        os.replace("new.pt", "checkpoint.pt")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}, "checkpoint.pt")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "replay --once",
        "diagnose --budget 20s",
        pytest.param("locate", marks=pytest.mark.long),
        pytest.param("onset", marks=pytest.mark.long),
    ],
)
def test_a_run_that_went_on_from_its_own_checkpoint_keeps_it(line: str, tmp_path: Path, saved_over: Path) -> None:
    before = inventory(saved_over / "work")
    ended = Started(command(*line.split()), saved_over / "work").end()
    assert "Traceback" not in ended.err
    after = inventory(saved_over / "work")
    assert {n: v for n, v in after.items() if "steadytrain-runs" not in n} == {
        n: v for n, v in before.items() if "steadytrain-runs" not in n
    }


@pytest.fixture(scope="module")
def saved_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved_over")
    (folder / "work").mkdir()
    write(folder / "work", SAVES_OVER)
    first = Started(command("run", "--name", "a", "script.py", "999", "40"), folder / "work").end()
    assert first.status == 0, first.err
    again = ["run", "--name", "b", "--continues", "steadytrain-runs/a", "script.py", "75", "120"]
    assert Started(command(*again), folder / "work").end().status == 70
    return folder
