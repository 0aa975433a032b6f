"""The bundle, against damage and strangers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding
from steadytrain.storage.bundle import is_bundle, open_bundle, open_for_report, seal, write_json
from steadytrain.storage.staged_bundle import update_incident

# The bundle.


def test_a_bundle_gives_back_what_was_written(tmp_path: Path) -> None:
    bundle = open_bundle(builders.write_bundle(tmp_path / "step-412"))
    # A NaN is not equal to itself; the documents are.
    assert bundle.incident.to_json() == builders.incident().to_json()
    assert bundle.environment == builders.ENVIRONMENT
    assert bundle.window.steps[-1] == 412


def test_a_later_finding_replaces_the_first_and_the_bundle_still_opens(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "step-412", builders.incident(finding=Finding(None, "not searched")))
    update_incident(path, builders.incident())
    assert open_bundle(path).finding.located == builders.located()


def test_every_file_of_a_bundle_that_is_cut_changed_or_missing_is_refused(tmp_path: Path) -> None:
    whole = builders.write_bundle(tmp_path / "whole")
    for name in sorted(file.name for file in whole.iterdir()):
        data = (whole / name).read_bytes()
        for label, content in (("cut", data[:-1]), ("changed", bytes([data[0] ^ 1]) + data[1:]), ("missing", None)):
            copy = shutil.copytree(whole, tmp_path / f"{name}-{label}")
            if content is None:
                (copy / name).unlink()
            else:
                (copy / name).write_bytes(content)
            if name == "manifest.json" and label == "cut":
                continue  # the line break at its end
            for opener in (open_bundle, open_for_report):
                with pytest.raises(UsageError) as caught:
                    opener(copy)
                assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/hostname", "sub/file", "..", ".", "", "nul\0byte"])
def test_a_manifest_cannot_name_a_path_outside_the_bundle(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    path = builders.write_bundle(tmp_path / "bundle")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["files"][name] = {"bytes": 6, "sha256": "0"}
    write_json(path / "manifest.json", manifest)
    with pytest.raises(UsageError):
        open_bundle(path)


@pytest.mark.parametrize("name", ["environment.json", "window.steps", "manifest.json"])
def test_a_link_in_a_bundle_is_refused(tmp_path: Path, name: str) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    (path / name).rename(tmp_path / "outside")
    (path / name).symlink_to(tmp_path / "outside")
    with pytest.raises(UsageError):
        open_bundle(path)


@pytest.mark.parametrize(
    "manifest",
    [
        [],
        {"format": "other"},
        {"format": "steadytrain.bundle", "version": 99, "files": {}},
        {"format": "steadytrain.bundle", "version": "1", "files": {}},
        {"format": "steadytrain.bundle", "version": 1, "files": []},
        {"format": "steadytrain.bundle", "version": 1, "files": {}},
        {"format": "steadytrain.bundle", "version": 1, "files": {"incident.json": "x"}},
    ],
)
def test_a_manifest_of_another_shape_is_refused(tmp_path: Path, manifest: object) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    write_json(path / "manifest.json", manifest)
    with pytest.raises(UsageError):
        open_bundle(path)


def test_json_that_nests_without_end_is_refused(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    (path / "manifest.json").write_text('{"a":' * 200_000)
    with pytest.raises(UsageError):
        open_bundle(path)


@pytest.mark.parametrize(
    "change",
    [
        {"step": "412"},
        {"step": True},
        {"run": None},
        {"symptoms": 3},
        {"symptoms": [{"name": "x"}]},
        {"symptoms": [{**builders.symptom().to_json(), "severity": "unheard-of"}]},
        {"symptoms": [{**builders.symptom().to_json(), "numbers": []}]},
        {"located": {**builders.located().to_json(), "produced": "zero"}},
        {"located": {**builders.located().to_json(), "extra": 1}},
        {"parameters": [{"name": "x"}]},
        {"action": None},
        {"losses": ["many"]},
    ],
)
def test_an_incident_document_of_other_types_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    write_json(path / "incident.json", {**builders.incident().to_json(), **change})
    seal(path)
    with pytest.raises(UsageError, match="not an incident document"):
        open_bundle(path)


def test_a_name_that_is_no_utf8_is_written_and_read_back(tmp_path: Path) -> None:
    write_json(tmp_path / "file.json", {"argv": ["caf\udce9.py", "é"]})
    assert json.loads((tmp_path / "file.json").read_text(encoding="utf-8")) == {"argv": ["caf\udce9.py", "é"]}


def test_a_folder_whose_writing_was_cut_off_is_a_bundle_that_says_so(tmp_path: Path) -> None:
    path = builders.write_bundle(tmp_path / "bundle")
    (path / "manifest.json").unlink()
    assert is_bundle(path)
    with pytest.raises(UsageError, match="writing was interrupted"):
        open_bundle(path)
