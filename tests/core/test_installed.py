"""Entry points are read once, and again where something was installed since."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from steadytrain.core import installed

GROUP = "steadytrain.tests"


def install(folder: Path, name: str) -> None:
    described = folder / f"{name}-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (described / "entry_points.txt").write_text(f"[{GROUP}]\n{name} = {name}:Plugin\n", encoding="utf-8")


def names() -> list[str]:
    return sorted(point.name for point in installed.entry_points(GROUP))


def test_they_are_those_of_the_library() -> None:
    expected = sorted(metadata.entry_points(group="pytest11"))
    assert expected
    assert sorted(installed.entry_points("pytest11")) == expected


def test_what_comes_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    assert names() == []
    install(tmp_path / "site", "first")
    assert names() == ["first"]
    install(tmp_path / "site", "second")
    assert names() == ["first", "second"]
    monkeypatch.setattr(sys, "path", sys.path[1:])
    assert names() == []


def test_they_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path / "site", "first")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    assert names() == ["first"]
    monkeypatch.setattr(metadata, "entry_points", None)  # a folder of a script, without distributions, changes nothing
    (tmp_path / "script").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path / "script"), *sys.path])
    assert names() == ["first"]
