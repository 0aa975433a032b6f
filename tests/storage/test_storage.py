"""The run folder, the step segments, the bundle and the redaction, against damage, strangers and secrets."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import builders
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Finding, Incident
from steadytrain.core.model import Window
from steadytrain.grouping.gravest import gravest_incident
from steadytrain.storage.bundle import is_bundle, open_bundle, open_for_report, seal, update_incident, write_json
from steadytrain.storage.redaction import (
    REDACTED,
    is_secret_name,
    redact_arguments,
    redact_environment,
    redact_text,
    redact_tree,
)
from steadytrain.storage.run_folder import RunWriter, open_run
from steadytrain.storage.run_search import find, list_runs, newest, unreadable_runs
from steadytrain.storage.segments import (
    SCALARS,
    SegmentWriter,
    StepRecord,
    count_records,
    read_scalars,
    read_segment,
    read_stream,
    window_of,
    write_window,
)

FLOAT32 = st.floats(width=32, allow_nan=True, allow_infinity=True)


@st.composite
def step_records(draw: st.DrawFn, tensors: int) -> list[StepRecord]:
    count = draw(st.integers(0, 6))
    return [
        StepRecord(
            step=draw(st.integers(0, 2**40)),
            time=draw(st.floats(0, 1e10)),
            scalars={name: draw(st.none() | FLOAT32) for name in SCALARS},
            gradient_norms=np.array(draw(st.lists(FLOAT32, min_size=tensors, max_size=tensors)), np.float32),
            skipped=draw(st.booleans()),
            refused=draw(st.booleans()),
        )
        for _ in range(count)
    ]


def assert_same(one: Window, other: Window) -> None:
    assert one.tensor_names == other.tensor_names
    np.testing.assert_array_equal(one.steps, other.steps)
    np.testing.assert_array_equal(one.time, other.time)
    np.testing.assert_array_equal(one.skipped, other.skipped)
    np.testing.assert_array_equal(one.refused, other.refused)
    np.testing.assert_array_equal(one.gradient_norms, other.gradient_norms)
    for name in SCALARS:
        np.testing.assert_array_equal(one.present[name], other.present[name])
        np.testing.assert_array_equal(one.signals[name], other.signals[name])


def write_steps(folder: Path, records: list[StepRecord], tensors: tuple[str, ...] = builders.TENSORS) -> Path:
    writer = SegmentWriter(folder, stream=folder.name)
    for record in records:
        writer.append(record, tensors)
    writer.close()
    return folder / "000001.steps"


# Segments.


@settings(max_examples=40)
@given(data=st.data(), tensors=st.integers(0, 4))
def test_segments_give_back_what_was_written(
    data: st.DataObject, tensors: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    names = tuple(f"layer.{index}" for index in range(tensors))
    records = data.draw(step_records(tensors))
    folder = tmp_path_factory.mktemp("segment") / "main"
    write_steps(folder, records, names)
    expected = window_of(records, names if records else ())
    assert_same(read_stream(folder), expected)
    write_window(folder.parent / "window", expected)
    assert_same(read_segment(folder.parent / "window.steps"), expected)
    assert count_records(folder) == len(records)


def test_a_file_cut_anywhere_in_the_last_record_opens_with_all_earlier_ones(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "main", builders.records(4))
    whole = path.read_bytes()
    size = len(whole) // 4
    for cut in range(3 * size, 4 * size):
        path.write_bytes(whole[:cut])
        assert read_segment(path).steps.tolist() == [1, 2, 3]


def test_a_flipped_bit_anywhere_in_a_record_ends_the_reading_before_it(tmp_path: Path) -> None:
    path = write_steps(tmp_path / "main", builders.records(3))
    whole = path.read_bytes()
    size = len(whole) // 3
    for position in range(size, 2 * size):
        damaged = bytearray(whole)
        damaged[position] ^= 0x10
        path.write_bytes(damaged)
        assert read_segment(path).steps.tolist() == [1]


def test_a_write_that_the_disk_cut_short_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second, third = builders.records(3)
    writer = SegmentWriter(tmp_path / "main", stream="main")
    writer.append(first, builders.TENSORS)
    whole_write = os.write
    monkeypatch.setattr(os, "write", lambda file, data: whole_write(file, data[:-3]))
    with pytest.raises(OSError, match="step 2"):
        writer.append(second, builders.TENSORS)
    monkeypatch.undo()
    writer.append(third, builders.TENSORS)
    writer.close()
    assert read_stream(tmp_path / "main").steps.tolist() == [1, 3]


def test_a_value_beyond_float32_does_not_read_as_a_measured_infinity(tmp_path: Path) -> None:
    record = replace(builders.records(1)[0], scalars={"loss": 1e300, "gradient_norm": float("inf")})
    window = read_segment(write_steps(tmp_path / "main", [record]))
    assert np.isfinite(window.signals["loss"][0])
    assert np.isinf(window.signals["gradient_norm"][0])


def test_other_tensors_start_another_segment_and_are_read_side_by_side(tmp_path: Path) -> None:
    writer = SegmentWriter(tmp_path / "main", stream="main")
    writer.append(replace(builders.records(1)[0], gradient_norms=np.array([1, 2], np.float32)), ("a", "b"))
    writer.append(replace(builders.records(1, first=2)[0], gradient_norms=np.array([3, 4], np.float32)), ("b", "c"))
    writer.close()
    window = read_stream(tmp_path / "main")
    assert window.tensor_names == ("a", "b", "c")
    assert window.gradient_norms.tolist() == [[1, 2, -1], [-1, 3, 4]]
    assert read_scalars(tmp_path / "main").tensor_names == ()
    assert read_scalars(tmp_path / "main").steps.tolist() == [1, 2]


def test_a_window_without_tensors_can_be_frozen(tmp_path: Path) -> None:
    window = replace(
        window_of(builders.records(2), builders.TENSORS), tensor_names=(), gradient_norms=np.zeros((0, 0), np.float32)
    )
    write_window(tmp_path / "window", window)
    assert len(read_segment(tmp_path / "window.steps")) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 99}, "upgrade steadytrain"),
        ({"version": "2"}, "upgrade steadytrain"),
        ({"scalars": [1, 2]}, "damaged"),
        ({"scalars": None}, "damaged"),
        ({"scalars": [f"s{index}" for index in range(40)]}, "damaged"),
        ({"stream": 3}, "damaged"),
    ],
)
def test_a_segment_schema_that_cannot_be_read_says_so(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = write_steps(tmp_path / "main", builders.records(1))
    schema = path.with_suffix(".json")
    schema.write_text(json.dumps({**json.loads(schema.read_text()), **change}))
    with pytest.raises(UsageError, match=message):
        read_segment(path)


# The run folder.


def test_a_run_folder_gives_back_what_was_written(tmp_path: Path) -> None:
    path = builders.bad_run(tmp_path / "copper-lynx")
    run = open_run(path)
    assert run.name == "copper-lynx"
    assert run.ended == "stopped"
    assert run.symptoms[0].name == "nonfinite-gradient"
    assert run.actions == (builders.incident().action,)
    assert run.incidents == (path / "incidents" / "step-412",)
    assert len(run.window()) == 412
    assert gravest_incident(path) == path / "incidents" / "step-412"


def test_of_several_incidents_the_gravest_is_meant(tmp_path: Path) -> None:
    def finite(step: int, *names: str, severity: str = "warning") -> Incident:
        symptoms = tuple(builders.symptom(step, name=name, severity=severity, numbers={}) for name in names)
        return builders.incident(step, symptoms=symptoms, kind="symptom")

    lone, slow, rises = finite(40, "loss-spike"), finite(50, "plateau", severity="critical"), finite(60, "divergence")
    grave = finite(70, "divergence", severity="critical")
    for number, (incidents, step) in enumerate(
        [((lone, rises), 40), ((lone, slow), 50), ((slow, grave), 70), ((slow, grave, builders.incident()), 412)]
    ):
        path = builders.bad_run(tmp_path / str(number), incidents=list(incidents))
        assert gravest_incident(path) == path / "incidents" / f"step-{step}"


def test_a_run_whose_process_was_killed_reads_as_far_as_it_got(tmp_path: Path) -> None:
    writer = RunWriter(tmp_path / "killed", dict(builders.DESCRIPTION))
    writer.raise_symptom(builders.symptom())
    run = open_run(tmp_path / "killed")
    assert run.ended is None
    assert len(run.symptoms) == 1
    writer.close()


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_a_missing_or_empty_index_reads_as_an_empty_one(tmp_path: Path, content: bytes | None) -> None:
    path = builders.write_run(tmp_path / "run", steps=builders.records(2))
    for file in path.glob("index.sqlite*"):
        file.unlink()
    if content is not None:
        (path / "index.sqlite").write_bytes(content)
    assert open_run(path).symptoms == ()


@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE symptoms",
        "INSERT INTO facts VALUES ('x', '{')",
        "INSERT INTO symptoms VALUES ('x', 'main', 1, 1, 'critical', '[]')",
        "INSERT INTO actions (step, document) VALUES (1, '{\"step\": 1}')",
        "UPDATE symptoms SET document = replace(document, 'critical', 'unheard-of')",
    ],
)
def test_a_damaged_index_is_one_line(tmp_path: Path, statement: str) -> None:
    path = builders.bad_run(tmp_path / "run")
    with sqlite3.connect(path / "index.sqlite") as index:
        index.execute(statement)
    index.close()
    with pytest.raises(UsageError, match="damaged") as caught:
        open_run(path)
    assert "\n" not in str(caught.value)


def test_an_index_that_is_no_database_is_one_line(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    for file in path.glob("index.sqlite*"):
        file.unlink()
    (path / "index.sqlite").write_bytes(b"no database" * 100)
    with pytest.raises(UsageError, match="damaged"):
        open_run(path)


def test_a_newer_run_folder_asks_for_an_upgrade_and_hides_no_other_run(tmp_path: Path) -> None:
    builders.quiet_run(tmp_path / "old", started="2026-01-01T00:00:00+00:00")
    builders.write_run(tmp_path / "new", version=99)
    with pytest.raises(UsageError, match=r"version 99 is newer.*upgrade"):
        open_run(tmp_path / "new")
    assert [run.name for run in list_runs(tmp_path)] == ["old"]
    assert newest(tmp_path).name == "old"
    (reason,) = unreadable_runs(tmp_path)
    assert "version 99" in reason


def test_an_index_cannot_name_an_incident_outside_the_run(tmp_path: Path) -> None:
    outside = builders.write_bundle(tmp_path / "elsewhere")
    path = builders.bad_run(tmp_path / "run")
    (path / "incidents" / "link").symlink_to(outside)
    with sqlite3.connect(path / "index.sqlite") as index:
        for name in ("../elsewhere", str(outside), "incidents/link"):
            index.execute("INSERT INTO incidents VALUES (?, 1, '{}')", (name,))
    index.close()
    assert open_run(path).incidents == (path / "incidents" / "step-412",)


@pytest.mark.parametrize("argv", ["text", [1, None], None, {"a": 1}])
def test_a_run_description_of_odd_types_is_listed(tmp_path: Path, argv: object) -> None:
    builders.quiet_run(tmp_path / "run", argv=argv, started=None)
    assert len(list_runs(tmp_path)) == 1


def test_find_takes_a_path_or_a_name_and_refuses_the_rest_in_one_line(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    assert find(str(path), tmp_path / "nowhere") == path
    assert find("run", tmp_path) == path
    for target in (str(tmp_path / "other"), "unheard-of", "x" * 5000, "nul\0byte"):
        with pytest.raises(UsageError):
            find(target, tmp_path)


def test_a_list_of_long_runs_reads_no_step(tmp_path: Path) -> None:
    path = builders.quiet_run(tmp_path / "run")
    (path / "steps" / "main" / "000001.steps").write_bytes(b"\0" * 1_000_000)
    assert list_runs(tmp_path)[0].steps > 0


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


# Redaction.

INNOCENT_TEXTS = [
    "max_tokens=512",
    "tokenizer_path=gpt2",
    "--max-tokens 512 --num_tokens 9",
    'eos_token="</s>"',
    "key = self.key(x)",
    "sorted(names, key=len)",
    "query, key, value = projected.chunk(3, dim=-1)",
    'text_key="content"',
    'if token == "a":',
    "for token in tokens:",
    "token=None",
    "author: Bob",
    "git clone git@github.com:someone/project.git",
    "https://example.org/a?page=2",
    "disk-0123456789abcdef0123",
]
SECRET = "Zq8vT2mK7w"
SECRET_TEXTS = [
    f"--api-key {SECRET}",
    f"--token={SECRET} --lr 1",
    f"HF_TOKEN={SECRET}",
    f'token: str = "{SECRET}"',
    f'api_key: Optional[str] = "{SECRET}"',
    f'os.environ["WANDB_API_KEY"] = "{SECRET}"',
    f'os.environ.setdefault("HF_TOKEN", "{SECRET}")',
    f'wandb.login(key="{SECRET}")',
    f"cfg: token={SECRET}",
    f'{{"cfg": {{"hfToken": "{SECRET}"}}}}',
    f'password = "a \\" {SECRET}"',
    f"password='it is \" {SECRET}'",
    f"['--api-key', '{SECRET}']",
    f"https://user:{SECRET}@example.org/x",
    f"https://user:p@{SECRET}@example.org/x",
    f"redis://:{SECRET}@example.org:6379",
    f"https://{SECRET}@example.org",
    f"s3://bucket/file?X-Amz-Signature={SECRET}",
    f"Authorization: Bearer {SECRET}",
    f'{{"Authorization": "Basic {SECRET}"}}',
    f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}\n-----END RSA PRIVATE KEY-----",
    f"hf_{SECRET}{SECRET}",
    f"sk-{SECRET}{SECRET}",
    f"ghp_{SECRET}{SECRET}",
]


@pytest.mark.parametrize("text", INNOCENT_TEXTS)
def test_innocent_text_is_left_alone(text: str) -> None:
    assert redact_text(text) == text


@pytest.mark.parametrize("text", SECRET_TEXTS)
def test_a_secret_in_text_is_taken_out(text: str) -> None:
    redacted = redact_text(text)
    assert SECRET not in redacted
    assert REDACTED in redacted
    assert redact_text(redacted) == redacted


@pytest.mark.parametrize(
    "name", ["max_tokens", "tokenizer_path", "tokens", "eos_token", "sort_key", "author", "keyboard"]
)
def test_innocent_names(name: str) -> None:
    assert not is_secret_name(name)


@pytest.mark.parametrize(
    "name", ["api-key", "token", "HF_TOKEN", "authToken", "db_password", "client_secret", "logger.wandb.api_key", "pwd"]
)
def test_secret_names(name: str) -> None:
    assert is_secret_name(name)


def test_arguments_lose_the_values_of_secret_options() -> None:
    arguments = ["t.py", "--api-key", "X", "--token=Y", "wandb_key=Z", "--use-auth-token", "--max_tokens", "5"]
    assert redact_arguments(arguments) == [
        *("t.py", "--api-key", REDACTED, f"--token={REDACTED}", f"wandb_key={REDACTED}"),
        *("--use-auth-token", "--max_tokens", "5"),
    ]


def test_a_tree_is_redacted_at_any_depth() -> None:
    tree = {"a": [{"password": SECRET, "lr": 1e-3}], "api_keys": [SECRET], "note": f"token={SECRET}", "max_tokens": 5}
    redacted = redact_tree(tree)
    assert SECRET not in json.dumps(redacted)
    assert redacted["max_tokens"] == 5
    assert redacted["a"][0]["lr"] == 1e-3


def test_the_environment_keeps_only_what_changes_the_numbers() -> None:
    kept = redact_environment({"OMP_NUM_THREADS": "2", "AWS_SECRET": SECRET, "TORCH_TOKEN": SECRET, "HOME": "/root"})
    assert kept == {"OMP_NUM_THREADS": "2", "TORCH_TOKEN": REDACTED}


@settings(max_examples=200)
@given(st.text(alphabet="ab=:\"'@/.-_ \\[]{}\nkeytoken", max_size=60))
def test_redaction_is_done_once_and_for_all(text: str) -> None:
    once = redact_text(text)
    assert redact_text(once) == once


@pytest.mark.parametrize(
    "piece", ["a", "a.", "a:", "a-", "token=", 'token="', "eyJ", "eyJ-", "://", "--token ", " ", "PRIVATE "]
)
def test_redaction_of_a_hostile_megabyte_is_quick(piece: str) -> None:
    started = time.thread_time()  # seconds of this thread on a processor, whatever else runs
    redact_text(piece * (300_000 // len(piece)))
    # A few tenths of a second; anything quadratic takes minutes.
    assert time.thread_time() - started < 5
