"""``steadytrain export``: what was concluded after a run reaches the tool, read back by the tool's own library."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from builders import bad_run, incident, quiet_run
from feeding import SECRET
from steadytrain.cli import export
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.exporters.exporter import incident_files

BUNDLE = "step-412"
WHY = f"nothing explains it <b>here</b>; the key was {SECRET}"
MARKUP = "![x](http://a.example/x)"


def diagnosed(path: Path) -> Path:
    """A run with a diagnosis that was made after it."""
    action = replace(incident().action, reason=f"the loss is NaN {MARKUP}")
    run = bad_run(path, incidents=[incident(action=action)])
    answer = Diagnosis(BUNDLE, "nonfinite-gradient", "exact", "", "unknown", None, WHY, (), ())
    answer_files.keep(run / "incidents" / BUNDLE, answer)
    return run


def call(*words: str) -> Result:
    return CliRunner().invoke(export.command, list(words), standalone_mode=False)


def refused(*words: str) -> str:
    done = call(*words)
    assert isinstance(done.exception, UsageError), done.exception
    return str(done.exception)


def sent(*words: str) -> str:
    done = call(*words)
    assert done.exception is None, done.exception
    return done.output


def test_bad_input_is_one_line_and_nothing_is_sent(tmp_path: Path) -> None:
    run = quiet_run(tmp_path / "run")
    before = sorted(run.rglob("*"))
    assert refused(str(run)) == "run: the run was sent to no tool; name one with --to, such as --to mlflow"
    assert "'mlflwo': no exporter has that name" in refused(str(run), "--to", "mlflwo")
    assert refused(str(run), "--to", "none").startswith("--to none: it keeps no documents of a run; one of ")
    bundle = bad_run(tmp_path / "bad") / "incidents" / BUNDLE
    assert "is an incident; a run is exported" in refused(str(bundle), "--to", "none")
    assert sorted(run.rglob("*")) == before


def test_a_link_in_a_bundle_is_no_file_of_it(tmp_path: Path) -> None:
    bundle = bad_run(tmp_path / "bad") / "incidents" / BUNDLE
    (tmp_path / "key").write_text("theirs")
    (bundle / "notes.json").symlink_to(tmp_path / "key")
    kept, left = incident_files(bundle, tensors=False)
    assert "notes.json" not in {file.name for file in (*kept, *left)}
    assert "incident.json" in {file.name for file in kept}


@pytest.mark.slow
def test_tensorboard_gets_texts(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from test_to_tensorboard import read, texts

    run = diagnosed(tmp_path / "run")
    out = sent(str(run), "--to", "tensorboard")
    assert out.startswith(f"tensorboard: incident {BUNDLE}, diagnosis {BUNDLE}, ledger run, page run -> ")
    events = read(run / "tensorboard")
    ((step, text),) = texts(events, f"diagnosis/{BUNDLE}")
    assert step == 412
    assert "nothing explains it" in text
    assert SECRET not in text
    ((_, ledger),) = texts(events, "ledger/run")
    assert ledger.startswith("    step 412: refused-update")
    assert "steadytrain report" in texts(events, "page/run")[0][1]


@pytest.mark.slow
def test_mlflow_gets_artifacts_in_the_run_that_it_has(tmp_path: Path) -> None:
    pytest.importorskip("mlflow.version")
    from test_mlflow import query, tags

    from steadytrain.exporters import after_run

    run, file = diagnosed(tmp_path / "run"), tmp_path / "mlflow.db"
    first = sent(str(run), "--to", "mlflow")
    assert f"incident {BUNDLE}" in first
    ((run_id, status, uri),) = query(file, "SELECT run_uuid, status, artifact_uri FROM runs")
    assert (status, run_id in first) == ("FINISHED", True)
    artifacts = Path(uri.removeprefix("file://"))
    names = {str(path.relative_to(artifacts)) for path in artifacts.rglob("*") if path.is_file()}
    assert names >= {f"diagnosis/{BUNDLE}/diagnosis.json", f"diagnosis/{BUNDLE}/diagnosis.txt", "ledger/run/ledger.txt"}
    assert names >= {"page/run/report.html", f"incident/{BUNDLE}/incident.json"}
    assert f"incident/{BUNDLE}/model.safetensors" not in names
    text = tags(file)[f"steadytrain.diagnosis.{BUNDLE}"]
    assert "nothing explains it" in text
    assert SECRET not in text + (artifacts / "diagnosis" / BUNDLE / "diagnosis.json").read_text()

    (run / "sent-to-mlflow.json").write_text(f'{{"tool": "mlflow", "run_id": "{run_id}", "prefix": "steadytrain/"}}')
    assert after_run.tools_of(run) == ("mlflow",)
    assert "incident" not in sent(str(run))
    assert (artifacts / "steadytrain" / "page" / "run" / "report.html").is_file()
    assert len(query(file, "SELECT run_uuid FROM runs")) == 1

    (run / "sent-to-mlflow.json").write_text('{"tool": "mlflow", "run_id": "0123", "prefix": ""}')
    line = refused(str(run))
    assert line == "mlflow: not sent: no run 0123 there; set MLFLOW_TRACKING_URI to where the run was sent"


@pytest.mark.slow
def test_mlflow_that_is_not_there_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlflow.version")
    from receivers import dead_port

    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{dead_port()}")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    line = refused(str(quiet_run(tmp_path / "run")), "--to", "mlflow")
    assert line.startswith("mlflow: not sent: ")
    assert "\n" not in line


@pytest.mark.slow
def test_wandb_gets_artifacts_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    from test_wandb import read

    run = diagnosed(tmp_path / "run")
    (run / "sent-to-wandb.json").write_text('{"tool": "wandb", "run_id": "abc123"}')
    out = sent(str(run))
    assert out.startswith(f"wandb: diagnosis {BUNDLE}, ledger run, page run -> {run}/wandb/offline-run-")
    assert out.endswith("; `wandb sync` sends it\n")
    records = list(read(run))
    (begun,) = [record.run for record in records if record.WhichOneof("record_type") == "run"]
    assert (begun.run_group, begun.job_type, begun.display_name) == ("abc123", "documents", "run-documents")
    artifacts = [one.request.log_artifact.artifact for one in records if one.request.HasField("log_artifact")]
    artifacts += [one.artifact for one in records if one.WhichOneof("record_type") == "artifact"]
    assert {one.type for one in artifacts} == {"diagnosis", "ledger", "page"}
    files = {entry.path for one in artifacts for entry in one.manifest.contents}
    assert files >= {"diagnosis.json", "diagnosis.txt", "ledger.txt", "page.txt", "report.html"}
    assert SECRET.encode() not in b"".join(path.read_bytes() for path in run.glob("wandb/**/run-*.wandb"))
