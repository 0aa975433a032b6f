"""``steadytrain bisect`` on a real repository: the commit is found, and nothing of it is left behind."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts import call, run_script

WAIT_S_MAX = 240.0

SCRIPT = """
    from pathlib import Path
    import torch
    from torch import nn
    from part import loss_of

    torch.manual_seed(0)
    scale = float(Path("data/scale.txt").read_text())
    model = nn.Linear(8, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 6):
        loss = loss_of(model(torch.randn(16, 8) * scale), step)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

GOOD = "def loss_of(outputs, step):\n    return outputs.pow(2).mean()\n"
BROKEN = "def loss_of(outputs, step\n"
BAD = """def loss_of(outputs, step):
    loss = outputs.pow(2).mean()
    return loss + (outputs.sum() * 0).sqrt() if step == 3 else loss
"""


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def commits(folder: Path, parts: Sequence[str]) -> list[str]:
    """One commit for each content of ``part.py``."""
    made = []
    for number, part in enumerate(parts):
        (folder / "part.py").write_text(f"{part}# {number}\n", encoding="utf-8")
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {number}")
        made.append(git(folder, "rev-parse", "HEAD"))
    return made


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Its data is not tracked: the work tree of a bisection has it only as a link."""
    folder = tmp_path / "project"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "scale.txt").write_text("1.0", encoding="utf-8")
    (folder / ".gitignore").write_text("data/\n__pycache__/\nruns/\ntrain.py.bak\n", encoding="utf-8")
    git(folder, "init", "-q")
    return folder


def bisect(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call("bisect", str(folder / "runs" / "run"), *arguments, folder=folder.parent)


@pytest.mark.slow
@pytest.mark.long
def test_the_first_bad_commit_is_found_and_nothing_is_left(repository: Path) -> None:
    (repository / "part.py").write_text(GOOD, encoding="utf-8")
    script = repository / "train.py"
    outcome = run_script(repository, SCRIPT)  # writes train.py, so that the first commit has it
    assert outcome.status == 0, outcome.err
    made = commits(repository, [GOOD, BROKEN, GOOD, BAD, BAD])
    outcome = run_script(repository, script, runs_dir=repository / "runs" / "again")
    assert outcome.status == 70, outcome.err
    (repository / "runs" / "run").rename(repository / "runs" / "healthy")
    (repository / "runs" / "again" / "run").rename(repository / "runs" / "run")
    before = (git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD"))

    done = bisect(repository, "--good", made[0], "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert (document["schema"], document["first_bad"], document["subject"]) == (
        "steadytrain.bisect/1",
        made[3],
        "commit 3",
    )
    assert (git(repository, "status", "--porcelain"), git(repository, "rev-parse", "HEAD")) == before
    assert len(git(repository, "worktree", "list").splitlines()) == 1
    assert git(repository, "for-each-ref", "refs/bisect") == ""

    done = bisect(repository, "--good", made[3], "--bad", made[4])
    assert done.returncode == 2
    assert "occurs at the good commit" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert len(git(repository, "worktree", "list").splitlines()) == 1

    for arguments, said in (
        (("--good", "no-such"), "no such commit"),
        (("--good", made[4], "--bad", made[0]), "no ancestor"),
        (("--good", "--output=x"), "dash"),
    ):
        done = bisect(repository, *arguments)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert said in done.stderr
