"""Pins keep the content of checkpoints against rotation, renames and overwriting, within bounds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from steadytrain.storage import checkpoint_pins
from steadytrain.storage.checkpoint_pins import Identity, Pins, beside, moved_to


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def contents(pins: Pins) -> list[str]:
    return [Path(name).read_text() for pin in pins.held for name in pin.files]


def test_a_pin_outlives_rotation_and_costs_no_copy(tmp_path: Path) -> None:
    file = write(tmp_path / "ckpt_20.pt", "twenty")
    pins = Pins(tmp_path / "run", 1000)
    assert pins.add(20, {file: False}) is not None
    assert file.stat().st_nlink == 2
    file.unlink()
    assert contents(pins) == ["twenty"]


def test_a_file_that_is_overwritten_in_place_leaves_its_pin_alone(tmp_path: Path) -> None:
    file = write(tmp_path / "ckpt.pt", "twenty")
    file.chmod(0o640)
    pins = Pins(tmp_path / "run", 1000)
    pins.add(20, {file: False})
    assert pins.is_about_to_be_written(file) == 0o640
    file.write_text("forty")
    assert contents(pins) == ["twenty"]
    assert pins.is_about_to_be_written(file) is None, "the new content is not pinned"


def test_a_link_is_followed_to_the_file(tmp_path: Path) -> None:
    file, latest = write(tmp_path / "ckpt_20.pt", "twenty"), tmp_path / "latest.pt"
    latest.symlink_to(file.name)
    pins = Pins(tmp_path / "run", 1000)
    pins.add(20, {latest: False})
    pins.is_about_to_be_written(latest)
    latest.write_text("forty")
    assert latest.is_symlink()
    assert file.read_text() == "forty"
    assert contents(pins) == ["twenty"]


def test_another_name_that_the_user_gave_shows_the_new_content_as_without_us(tmp_path: Path) -> None:
    file = write(tmp_path / "ckpt.pt", "twenty")
    os.link(file, tmp_path / "best.pt")
    pins = Pins(tmp_path / "run", 1000)
    pins.add(20, {file: False})
    assert pins.is_about_to_be_written(file) is None
    file.write_text("forty")
    assert (tmp_path / "best.pt").read_text() == "forty"
    assert contents(pins) == ["twenty"], "a copy"


def test_without_room_for_two_the_pin_goes_and_not_the_script_s_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "ckpt.pt", "twenty")
    pins = Pins(tmp_path / "run", 1000)
    pins.add(20, {file: False})
    monkeypatch.setattr(checkpoint_pins.shutil, "disk_usage", lambda path: _Full())
    assert pins.is_about_to_be_written(file) is None
    assert pins.held == []
    assert file.read_text() == "twenty"


class _Full:
    free = 3


def test_the_newest_and_one_well_before_it_are_kept(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "run", 1000)
    for step in range(20, 401, 20):
        pins.add(step, {write(tmp_path / f"ckpt_{step}.pt", str(step)): False})
    newer, older = pins.held[-1].step, pins.held[0].step
    assert newer == 400
    assert older <= 400 - checkpoint_pins.APART_STEPS
    assert len(list((tmp_path / "run" / "checkpoints").iterdir())) == 2


def test_the_bound_holds(tmp_path: Path) -> None:
    pins = Pins(tmp_path / "run", 10)
    assert pins.add(20, {write(tmp_path / "large.pt", "x" * 11): False}) is None
    pins.add(40, {write(tmp_path / "a.pt", "x" * 9): False})
    pins.add(400, {write(tmp_path / "b.pt", "x" * 9): False})
    assert [pin.step for pin in pins.held] == [400]


def test_a_file_written_through_an_open_file_is_copied_and_a_large_one_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "ckpt.pt", "twenty")
    pins = Pins(tmp_path / "run", 1000)
    pins.add(20, {file: True})
    file.write_text("forty")
    assert contents(pins) == ["twenty"]
    monkeypatch.setattr(checkpoint_pins, "COPY_BYTES_MAX", 3)
    with pytest.raises(OSError, match="too large"):
        pins.add(40, {file: True})
    assert [pin.step for pin in pins.held] == [20]
    assert [entry.name for entry in (tmp_path / "run" / "checkpoints").iterdir()] == ["step-000020"]


def test_a_renamed_file_is_found_again(tmp_path: Path) -> None:
    file = write(tmp_path / "tmp" / "model.pt", "twenty")
    known = Identity.of(file)
    assert known is not None
    assert moved_to(str(file), known) == str(file)
    file.parent.rename(tmp_path / "checkpoint-20")
    assert moved_to(str(file), known) == str(tmp_path / "checkpoint-20" / "model.pt")
    write(file, "forty")
    assert moved_to(str(file), known) == str(tmp_path / "checkpoint-20" / "model.pt")
    (tmp_path / "checkpoint-20" / "model.pt").unlink()
    assert moved_to(str(file), known) is None


def test_small_files_beside_a_checkpoint_of_several_are_kept_with_it(tmp_path: Path) -> None:
    files = [write(tmp_path / "c" / name, "x") for name in ("model.safetensors", "optimizer.pt")]
    write(tmp_path / "c" / "trainer_state.json", "{}")
    assert {path.name for path in beside(files)} == {"model.safetensors", "optimizer.pt", "trainer_state.json"}
    assert beside(files[:1]) == files[:1]


def test_a_file_that_was_read_outlives_overwriting_and_goes_where_it_stayed(tmp_path: Path) -> None:
    first, second = write(tmp_path / "last.pt", "early"), write(tmp_path / "data.pt", "rows")
    pins = Pins(tmp_path / "run", 1000)
    read = {str(path): identity(path) for path in (first, second)}
    held = {str(path): pins.add_read(path) for path in (first, second)}
    assert pins.is_about_to_be_written(first) is not None
    first.write_text("later")
    pins.drop_unchanged(held, read)
    assert held.keys() == {str(first)}
    assert (tmp_path / "run" / held[str(first)]).read_text() == "early"
    assert second.stat().st_nlink == 1
    assert [path.name for path in (tmp_path / "run").rglob("*.pt")] == ["last.pt"]


def test_a_file_that_was_read_is_never_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*args: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuses)
    pins = Pins(tmp_path / "run", 1000)
    with pytest.raises(OSError, match="cross-device"):
        pins.add_read(write(tmp_path / "data.pt", "rows"))
    assert not list((tmp_path / "run").rglob("*.pt"))


def identity(path: Path) -> Identity:
    found = Identity.of(path)
    assert found is not None
    return found
