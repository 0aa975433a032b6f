"""Send what was concluded about a run after it ended to the tools of ``run --to``."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

from rich.console import Console

from steadytrain.api.pages import page_of
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis import answer_files
from steadytrain.diagnosis.answer import Diagnosis
from steadytrain.exporters import after_run
from steadytrain.exporters.exporter import Document, action_text, incident_files, incident_text
from steadytrain.exporters.exporter import Run as SentRun
from steadytrain.exporters.run_places import read_place
from steadytrain.report import diagnosis_shown, text
from steadytrain.report.page_file import write_page
from steadytrain.report.wording import clean
from steadytrain.storage.bundle import is_bundle, open_for_report
from steadytrain.storage.documents import as_json, redact_value, write_text
from steadytrain.storage.redaction import redact_tree
from steadytrain.storage.run_folder import Run, open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT, find

WIDTH = 110
"""Columns of a diagnosis as text: what a tracker shows without a line break."""

PAGE_FILE = "report.html"


@dataclass(frozen=True)
class Sent:
    """What one tool got: the kinds and names of the documents, and where they are."""

    tool: str
    documents: tuple[str, ...]
    where: str


def export(
    target: str | None = None, *, to: Sequence[str] = (), runs_dir: str | Path = RUNS_DIR_DEFAULT
) -> tuple[list[Sent], list[str]]:
    """Send the diagnoses, the ledger and the page of a run; its incidents in words too, if the tool never had the run.

    Args:
        target: a run folder or the name of a run under ``runs_dir``; None: the newest run.
        to: names of tools; empty: those that the run went to.
        runs_dir: folder of run folders.

    Returns:
        What was sent, and a line for each tool to which it was not.

    Raises:
        UsageError: there is no such run, or a tool cannot be used. Nothing was sent then.
    """
    path = find(target, Path(runs_dir))
    if is_bundle(path):
        raise UsageError(f"{path} is an incident; a run is exported: steadytrain export {path.parent.parent}")
    path = path.absolute()
    run = open_run(path)
    tools = after_run.check_tools(to or after_run.tools_of(path))
    if not tools:
        raise UsageError(f"{run.name}: the run was sent to no tool; name one with --to, such as --to mlflow")
    for tool in tools:
        if (path / tool).is_symlink():
            raise UsageError(f"{path / tool}: a link; remove it: what is sent must stay in the run folder")
    facts = redact_tree({**run.description, "ended": run.state})
    sent_run = SentRun(run.name, str(path), facts)
    sent: list[Sent] = []
    failed: list[str] = []
    with tempfile.TemporaryDirectory(prefix="steadytrain-export-") as folder:
        concluded = concluded_of(run, Path(folder))
        for tool in tools:
            recorded = recorded_of(run) if read_place(path, tool) is None else []
            documents = [*recorded, *concluded]
            try:
                where = after_run.send(tool, sent_run, documents)
            except UsageError as error:
                failed.append(str(error))
            else:
                sent.append(Sent(tool, tuple(f"{one.kind} {one.name}" for one in documents), where))
    return sent, failed


def concluded_of(run: Run, folder: Path) -> list[Document]:
    """The diagnoses, the ledger and the page of a run; files are written into ``folder``."""
    return [*_diagnoses(run, folder), *_ledger(run), _page(run, folder)]


def _diagnoses(run: Run, folder: Path) -> list[Document]:
    found = []
    for source in (*run.incidents, run.path):
        answer = answer_files.read(source)
        if answer is not None:
            name = source.name if source != run.path else run.name
            file = folder / f"diagnosis-{name}" / "diagnosis.json"
            file.parent.mkdir()
            write_text(file, as_json(answer.to_json(), indent=1, ensure_ascii=False) + "\n")
            found.append(Document("diagnosis", name, _step_of(source, run), as_text(answer), (str(file),)))
    return found


def _step_of(source: Path, run: Run) -> int:
    return run.steps if source == run.path else open_for_report(source).incident.step


def as_text(answer: Diagnosis) -> str:
    """A diagnosis as the terminal shows it, without colours and control characters."""
    written = StringIO()
    console = Console(file=written, width=WIDTH, highlight=False, emoji=False, markup=False, color_system=None)
    console.print(text.diagnosis(redact_value(diagnosis_shown.part(answer))), crop=False)
    return "\n".join(clean(line.rstrip()) for line in written.getvalue().splitlines())


def _ledger(run: Run) -> list[Document]:
    if not run.actions:
        return []
    lines = [action_text(redact_value(action)) for action in run.actions]
    return [Document("ledger", run.name, run.actions[-1].step, "\n".join(lines))]


def _page(run: Run, folder: Path) -> Document:
    file = folder / PAGE_FILE
    write_page(file, page_of(run.path))
    return Document("page", run.name, run.steps, f"the page of the run: steadytrain report {run.path}", (str(file),))


def recorded_of(run: Run) -> list[Document]:
    """The incidents of a run in words, with the files of each that are no tensors."""
    found = []
    for path in run.incidents:
        incident = redact_value(open_for_report(path).incident)
        files, _ = incident_files(path, tensors=False)
        found.append(
            Document("incident", path.name, incident.step, incident_text(path, incident), tuple(map(str, files)))
        )
    return found
