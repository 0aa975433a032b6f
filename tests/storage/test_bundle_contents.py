"""What a bundle holds is listed without torch, and a stripped copy still opens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import builders
from steadytrain.cli.bundle import command
from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import open_bundle, seal
from steadytrain.storage.bundle_contents import LEFT_OUT, Contents, inspect_bundle, strip_bundle

BATCHES = {
    "format": "steadytrain.batches",
    "version": 1,
    "calls": [{"step": 1, "call": {"dict": [["args", {"list": [{"value": "a private row"}, {"tensor": "t.0"}]}]]}}],
    "fetches": [],
}


def tensors(*shapes: list[int]) -> bytes:
    header = json.dumps({f"t.{at}": {"dtype": "F32", "shape": shape} for at, shape in enumerate(shapes)}).encode()
    return len(header).to_bytes(8, "little") + header


def bundle(folder: Path) -> Path:
    path = builders.write_bundle(folder / "step-412", batches=BATCHES)
    (path / "batches.safetensors").write_bytes(tensors([2, 8]))
    (path / "model.safetensors").write_bytes(tensors([4, 8], [4]))
    (path / "source.diff").write_text("+ a line\n- another\n", encoding="utf-8")
    for name in ("replay/tape/000001-000005.json", "replay/snapshots/step-000001/state.json"):
        (path / name).parent.mkdir(parents=True)
        (path / name).write_text("{}", encoding="utf-8")
    seal(path)
    return path


def kinds(contents: Contents) -> set[str]:
    return {file.kind for file in contents.files}


def test_rows_text_weights_and_code_are_counted(tmp_path: Path) -> None:
    contents = inspect_bundle(bundle(tmp_path))
    assert contents.rows == {"calls": 1, "tensors": 1, "values": 16}
    assert contents.text == {"strings": 1, "characters": 13}
    assert contents.weights == {"tensors": 2, "values": 36}
    assert contents.code == {"diff_lines": 2, "quoted_lines": 1}
    assert kinds(contents) == {"data", "weights", "code", "settings", "findings", "curves"}
    assert contents.to_json()["schema"] == "steadytrain.bundle-contents/1"
    assert contents.size_bytes == sum(file.size_bytes for file in contents.files)


@pytest.mark.parametrize("data", [False, True])
@pytest.mark.parametrize("weights", [False, True])
def test_a_stripped_copy_opens_and_says_what_was_left_out(tmp_path: Path, data: bool, weights: bool) -> None:
    source = bundle(tmp_path)
    if not data and not weights:
        with pytest.raises(UsageError, match="nothing to leave out"):
            strip_bundle(source, tmp_path / "small", data=data, weights=weights)
        return
    contents = strip_bundle(source, tmp_path / "small", data=data, weights=weights)
    opened = open_bundle(tmp_path / "small").incident
    assert ("data" in kinds(contents), "weights" in kinds(contents)) == (not data, not weights)
    assert (opened.batch_note == LEFT_OUT, opened.state_note == LEFT_OUT) == (data, weights)
    assert contents.left_out == tuple(name for name, left in (("data", data), ("weights", weights)) if left)
    text = "".join(file.read_text(errors="replace") for file in (tmp_path / "small").rglob("*") if file.is_file())
    assert ("a private row" in text) == (not data)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["small", "step-412"]
    assert inspect_bundle(source).left_out == ()


def test_an_output_that_exists_and_a_damaged_bundle_are_refused_and_leave_nothing(tmp_path: Path) -> None:
    source = bundle(tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        strip_bundle(source, source, data=True, weights=False)
    with pytest.raises(UsageError, match="no such folder"):
        strip_bundle(source, tmp_path / "none" / "small", data=True, weights=False)
    (source / "source.diff").write_text("changed", encoding="utf-8")
    with pytest.raises(UsageError, match="truncated or changed"):
        strip_bundle(source, tmp_path / "small", data=True, weights=False)
    assert [entry.name for entry in tmp_path.iterdir()] == ["step-412"]


def test_a_header_that_claims_more_than_its_file_is_refused(tmp_path: Path) -> None:
    source = bundle(tmp_path)
    (source / "model.safetensors").write_bytes((1 << 50).to_bytes(8, "little"))
    seal(source)
    with pytest.raises(UsageError, match="its header claims"):
        inspect_bundle(source)


def test_a_bundle_is_found_by_its_short_name(tmp_path: Path) -> None:
    builders.bad_run(tmp_path / "nan")
    (incident,) = (tmp_path / "nan" / "incidents").iterdir()
    words = ["inspect", f"nan/{incident.name}", "--runs-dir", str(tmp_path)]
    done = CliRunner().invoke(command, words, catch_exceptions=False, standalone_mode=False)
    assert done.return_value == 0
    assert ": step 412 of copper-lynx" in done.stdout
