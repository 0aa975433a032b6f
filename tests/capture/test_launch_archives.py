"""Zipapps and folders with a ``__main__.py`` are run as plain Python runs them."""

from __future__ import annotations

import sys
import zipapp
import zipfile
from pathlib import Path

import pytest

from scripts import command, finished, write_script

APP = """
    import sys

    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(6):
        loss = model(torch.randn(8, 4)).square().mean()
        if step == 4 and "bad" in sys.argv:
            loss = loss * float("nan")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(sys.argv, __file__, __name__, round(loss.item(), 6))
"""


def app(folder: Path, kind: str) -> Path:
    (folder / "app").mkdir()
    write_script(folder / "app", APP, "__main__.py")
    if kind == "folder":
        return folder / "app"
    zipapp.create_archive(folder / "app", folder / "app.pyz")
    return folder / "app.pyz"


@pytest.mark.parametrize("kind", ["zipapp", pytest.param("folder", marks=pytest.mark.long)])
def test_what_holds_a_main_runs_as_python_runs_it(kind: str, tmp_path: Path) -> None:
    name = app(tmp_path, kind).name
    plain = finished([sys.executable, name, "one"], folder=tmp_path)
    ours = finished(command("run", "--runs-dir", "runs", name, "one"), folder=tmp_path)
    assert plain.returncode == ours.returncode == 0, ours.stderr
    assert ours.stdout == plain.stdout
    assert "6 steps seen" in ours.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["zipapp", pytest.param("folder", marks=pytest.mark.long)])
def test_a_nan_in_it_is_stopped_and_replayed(kind: str, tmp_path: Path) -> None:
    name = app(tmp_path, kind).name
    ours = finished(command("run", "--runs-dir", "runs", "--name", "one", name, "bad"), folder=tmp_path)
    assert ours.returncode == 70
    assert "__main__.py:12" in ours.stderr
    again = finished(command("replay", "--runs-dir", "runs", "one"), folder=tmp_path)
    assert "to the last bit" in again.stdout, again.stderr


def test_an_archive_without_a_main_is_one_line(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "rows.zip", "w") as archive:
        archive.writestr("rows.csv", "1,2")
    ended = finished(command("run", "rows.zip"), folder=tmp_path)
    assert ended.returncode == 2
    assert ended.stderr == "steadytrain: rows.zip: an archive without __main__.py; nothing was run\n"
