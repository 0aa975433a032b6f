"""Every writer of text goes through ``storage.documents``; whoever adds another one says here why it may."""

from __future__ import annotations

import re
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "src" / "steadytrain"

WRITES = re.compile(
    r"\bjson\.dumps?\(|\.write_text\(|\.write_bytes\(|\bclick\.s?echo\(|(?<![.>] )(?<![.\w])print\(|"
    r"\bjson\.dump\(|\.writerows?\(|\bstd(?:out|err)\.write\("
)
ALLOWED = {
    "storage/documents.py": "the place itself",
    "storage/flight_records.py": "text by as_json",
    "detection/record_folder.py": "a folder, to the other processes of the run, in memory",
    "trial_runs/remote_worker.py": "answers to our own process, which writes them redacted",
    "trial_runs/slurm_engine.py": "trials to our own process",
    "cli/_output.py": "prints what is redacted in the same line",
    "cli/_terminal.py": "redacts in the line before",
    "cli/_standard_output.py": "a page that was written redacted",
    "cli/_catalogues.py": "documentation of the plug-ins, no run",
    "cli/explain.py": "documentation of the plug-ins, redacted by say",
    "cli/main.py": "redacts the error in the same line",
    "cli/query.py": "redacts each cell, and names of columns",
    "cli/preflight.py": "writes and prints a document that was redacted as a tree",
    "replay/command_runner.py": "redacts in the same line",
    "attach/start/sitecustomize.py": "our own error while a child starts; nothing else is imported there",
    "capture/step/run_stopped.py": "an example in a docstring",
    "core/errors.py": "an example in a docstring",
    "diagnosis/interventions.py": "a line of advice",
    "attach/messages.py": "redacts in the same line",
    "preflight_runs/process_copy.py": "the answer to the parent, in a scratch folder; redacted when it is shown",
    "replay/file_sandbox.py": "settings of our own child, in its environment",
    "preflight_runs/session.py": "redacts in the same line",
    "exporters/exporter_process.py": "redacts in the same line; settings of alerts to our own process",
    "exporters/alerts/alert_exporter.py": "redacts in the same line",
    "exporters/alerts/url_check.py": "addresses to our own process, and its answer, which holds none",
    "trial_runs/process_copy.py": "one number to the parent; why is our own sentence",
    "trial_runs/server.py": "names of trials to the parent",
    "trial_runs/socket_messages.py": "our requests to our own process, never to a file",
    "trial_runs/pool.py": "a key in memory",
    "trial_runs/patched_run.py": "the script itself, changed, in a scratch folder: it has to run",
    "onset/measured_replay.py": "names of tensors to our own process",
    "checks/model/data_parallel_equivalence.py": "numbers to the parent",
    "checks/data/tokenizing.py": "hashed",
    "report/html.py": "drawn from a redacted report",
    "report/checks_page.py": "text of a page, which is drawn redacted",
    "report/page_file.py": "a page that was drawn redacted",
    "storage/compaction.py": "schemas that were written redacted",
    "storage/query.py": "facts that were written redacted, redacted again when shown",
    "storage/left_overs.py": "text by as_json",
    "storage/origin.py": "hashed",
    "storage/stalls.py": "text by as_json, code redacted before it is cut",
    "storage/segments.py": "schemas by as_json; records of numbers",
    "storage/tables.py": "schemas by as_json; records of numbers",
    "experiments/outcome_files.py": "hashed",
    "experiments/specs.py": "hashed",
    "experiments/trials/old_settings.py": "compared in memory",
    "capture/hooks/launch.py": "settings of our own child; the exit message of the script, as Python has it",
    "capture/snapshots/safetensors_writer.py": "names are redacted where the header is made",
    "capture/snapshots/tape.py": "text by as_json",
    "capture/snapshots/snapshots.py": "text by as_json",
    "repro/training_script.py": "a line of the script that is made",
    "repro/program_script.py": "a line of the script that is made",
}


def writers() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if WRITES.search(line) and not re.match(r"\s*def |\s*#", line):
                found.setdefault(path.relative_to(PACKAGE).as_posix(), []).append(line.strip())
    return found


def test_no_writer_goes_past_the_redaction_and_no_exception_is_stale() -> None:
    found = writers()
    assert {name: lines for name, lines in found.items() if name not in ALLOWED} == {}
    assert sorted(set(ALLOWED) - set(found)) == []
