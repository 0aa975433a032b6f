"""``steadytrain analyze``: run the detectors on the logs of other tools; output as text, JSON or a page."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options, _terminal
from steadytrain.cli._next import say_next
from steadytrain.cli._output import say, say_document
from steadytrain.core.errors import UsageError
from steadytrain.core.visible_text import visible
from steadytrain.storage.documents import redact_value

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from steadytrain.api.log_analysis import AnalyzedRun
    from steadytrain.core.model import Severity, Symptom
    from steadytrain.grouping import Health
    from steadytrain.grouping.stories import Story
    from steadytrain.logs import Log, Tell

UNHEALTHY_STATUS = 1
STORIES_SHOWN_MAX = 8
NOTED_SHOWN_MAX = 4
NOTES_SHOWN_MAX = 6
RUNS_IN_FULL_MAX = 8
"""If there are more runs, those without a symptom above a note get one line each, before the others."""

PAGES_MAX = 64
PROGRESS_BYTES_MIN = 1 << 25
"""Shorter files need no progress bar."""

_HEALTH_STYLES: dict[Health, str] = {
    "healthy": "bold green",
    "watch": "bold yellow",
    "sick": "bold red",
    "unknown": "bold",
}
_QUIET: tuple[Health, ...] = ("healthy", "unknown")
_DIM = "dim"


@click.command()
@click.argument("logs", nargs=-1, required=True, metavar="LOG...", type=click.Path(path_type=Path))
@click.option("--loss", metavar="COL", help="Column of the training loss, if the guess is wrong.")
@click.option("--step", metavar="COL", help="Column of the optimizer step.")
@click.option("--grad-norm", "gradient_norm", metavar="COL", help="Column of the gradient norm.")
@click.option("--lr", "learning_rate", metavar="COL", help="Column of the learning rate.")
@click.option(
    "--compare",
    type=click.Path(path_type=Path),
    metavar="LOG",
    help="Compare each with a healthy log: both levels at the same steps, and from which step they differ.",
)
@_options.as_json
@click.option(
    "-o",
    "--output",
    "--html",
    "html",
    type=click.Path(path_type=Path),
    callback=_options.writable,
    help="Also write an HTML page with the curves; for several runs one each, with the run's name added to FILE's.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["warning", "critical"]),
    help="Exit with 1 if a symptom of this severity or above was found.",
)
def command(
    logs: tuple[Path, ...],
    compare: Path | None,
    as_json: bool,
    html: Path | None,
    fail_on: Severity | None,
    **columns: str | None,
) -> int:
    """Look for symptoms in the logs of any training, without PyTorch.

    LOG is a file or a folder: trainer_state.json, JSON Lines, CSV, what a script printed, TensorBoard's event files,
    runs of Weights & Biases on disk, stores of MLflow, Lightning's metrics.csv, a steadytrain run. docs/analyze.md
    explains how the command finds columns.

    Exits with 0 if it could read a log, whatever it found (but see --fail-on), and with 2 if it could read none.
    """
    from steadytrain.api.log_analysis import NothingReadError, analyze

    if html is not None:
        _check_writable(html)
    try:
        with _progress() as tell:
            analysis = analyze(*logs, compare=compare, tell=tell, **columns)
    except NothingReadError as nothing:
        for line in nothing.lines[:-1]:
            say(f"steadytrain: {_one_line(line)}", err=True)
        raise UsageError(_one_line(nothing.lines[-1])) from None
    for line in analysis.unreadable:
        say(f"steadytrain: not read: {_one_line(line)}", err=True)
    pages = _write_pages(analysis.runs, html) if html is not None else []
    if as_json:
        say_document(analysis.to_json(), ensure_ascii=True)
    else:
        _print(analysis.runs, pages)
    return UNHEALTHY_STATUS if fail_on is not None and analysis.reaches(fail_on) else 0


@contextmanager
def _progress() -> Iterator[Tell]:
    """The progress callback for readers: a bar on a terminal for a long file, otherwise nothing."""
    if not sys.stdout.isatty():
        yield lambda path, done, size: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress

    with Progress(console=Console(file=_terminal.plain(sys.stderr)), transient=True) as bar:
        tasks: dict[Path, Any] = {}

        def tell(path: Path, done: int, size: int) -> None:
            if size >= PROGRESS_BYTES_MIN:
                if path not in tasks:
                    tasks[path] = bar.add_task(escape(visible(path.name)), total=size)
                bar.update(tasks[path], completed=done)

        yield tell


# Text.


def _print(judged: Sequence[AnalyzedRun], pages: Sequence[tuple[Path, int]]) -> None:
    from rich.console import Group

    _terminal.show(Group(*_parts(redact_value(judged))), crop=False)
    for path, size in pages:
        say(f"{path}  {size / 1024:,.0f} KiB")
    from steadytrain.core.model import SEVERITIES

    symptoms = [one for entry in judged for one in entry.judgement.symptoms]
    if symptoms:
        gravest = max(symptoms, key=lambda one: SEVERITIES.index(one.severity))
        say_next("explain", gravest.name, why="causes, and what to do")


def _parts(judged: Sequence[AnalyzedRun]) -> Iterator[RenderableType]:
    from rich.text import Text

    from steadytrain.api.log_analysis import summaries_of_symptoms

    untold = summaries_of_symptoms()
    in_full, in_a_line = list(judged), []
    if len(judged) > RUNS_IN_FULL_MAX and judged[0].reference is None:
        in_full = [entry for entry in judged if entry.judgement.health not in _QUIET]
        in_a_line = [entry for entry in judged if entry.judgement.health in _QUIET]
    # The important part comes last, at the end of the terminal's output.
    yield from map(_run_line, in_a_line)
    if in_a_line:
        yield Text()
    for number, entry in enumerate(in_full):
        if number:
            yield Text()
        yield from _run_parts(entry, untold)
    if len(judged) > 1:
        counts = Counter(entry.judgement.health for entry in judged)
        told = ", ".join(f"{counts[health]} {health}" for health in _HEALTH_STYLES if counts[health])
        yield Text(f"\n{len(judged)} runs: {told}")


def _run_line(entry: AnalyzedRun) -> Text:
    from rich.text import Text

    from steadytrain.report.wording import clean

    health = entry.judgement.health
    parts = (
        (_health_of(entry), _HEALTH_STYLES[health]),
        f"  {clean(entry.log.name)}",
        (f"  {_steps_of(entry.log)}", _DIM),
    )
    return Text.assemble(*parts, no_wrap=True, overflow="ignore")


def _run_parts(entry: AnalyzedRun, untold: dict[str, str]) -> Iterator[RenderableType]:
    """A run in full. ``untold`` holds the summaries of symptoms that the output has not explained yet."""
    from rich.padding import Padding
    from rich.text import Text

    from steadytrain.report.log_reference import lines_of
    from steadytrain.report.wording import clean

    log, judgement = entry.log, entry.judgement
    yield Text(clean(log.name), style="bold", no_wrap=True, overflow="ignore")
    lines = [
        Text.assemble((_health_of(entry), _HEALTH_STYLES[judgement.health]), f": {clean(judgement.why)}"),
        Text(f"{_steps_of(log)}, {log.kind}", style=_DIM),
        *_loss_of(log),
    ]
    grave = [story for story in judgement.stories if story.severity != "note"]
    shown = _gravest(grave)
    for story in shown:
        lines += _story_lines(story, untold)
    if len(grave) > len(shown):
        told = {story.number for story in shown}
        counts = Counter(story.severity for story in grave if story.number not in told)
        left = ", ".join(f"{counts[severity]:,} {severity}" for severity in ("critical", "warning") if counts[severity])
        lines.append(Text(f"and more stories: {left} (--json has all)", style=_DIM))
    lines += [Text(line) for line in _noted(entry)]
    lines += [Text(clean(note), style=_DIM) for note in log.notes[:NOTES_SHOWN_MAX]]
    if len(log.notes) > NOTES_SHOWN_MAX:
        lines.append(Text(f"and {len(log.notes) - NOTES_SHOWN_MAX} more notes (--json has all)", style=_DIM))
    if entry.reference is not None:
        lines += [Text(line, no_wrap=True, overflow="ignore") for line in lines_of(entry.reference)]
    yield from (Padding(line, (0, 0, 0, 2)) for line in lines)


def _gravest(stories: Sequence[Story]) -> list[Story]:
    """The stories to show: critical ones take precedence; then sorted by onset."""
    critical_first = sorted(stories, key=lambda story: story.severity != "critical")
    return sorted(critical_first[:STORIES_SHOWN_MAX], key=lambda story: story.number)


def _story_lines(story: Story, untold: dict[str, str]) -> Iterator[Text]:
    """A story's text, and the meaning of its symptoms if not explained before."""
    from rich.text import Text

    from steadytrain.report.text import STYLES
    from steadytrain.report.wording import clean

    where = _steps_between(story.first_step, story.last_step)
    yield Text.assemble((story.severity, STYLES[story.severity]), f", {where}: {clean(story.text)}")
    for symptom in story.symptoms:
        if symptom.severity != "note" and symptom.name in untold:
            yield Text.assemble("  ", (clean(symptom.name), "bold"), (f": {untold.pop(symptom.name)}", _DIM))


def _steps_between(first: int, last: int) -> str:
    """Step numbers as the log writes them, so that they can be found there."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _health_of(entry: AnalyzedRun) -> str:
    """The verdict, with the number of notes where nothing is above one."""
    from steadytrain.logs.numerals import counted

    notes = sum(symptom.severity == "note" for symptom in entry.judgement.symptoms)
    health = entry.judgement.health
    return f"{health}, {counted(notes, 'note')}" if notes and health in _QUIET else health


def _noted(entry: AnalyzedRun) -> Iterator[str]:
    """Notes, each with its sentence; of a name with several the first."""
    from steadytrain.report.wording import clean

    by_name: dict[str, list[Symptom]] = {}
    for symptom in entry.judgement.symptoms:
        if symptom.severity == "note":
            by_name.setdefault(symptom.name, []).append(symptom)
    for name, (first, *others) in list(by_name.items())[:NOTED_SHOWN_MAX]:
        more = f" (and {len(others):,} more)" if others else ""
        where = _steps_between(first.first_step, first.last_step)
        yield f"note {clean(name)}, {where}{more}: {clean(first.message)}"
    if len(by_name) > NOTED_SHOWN_MAX:
        yield f"and notes of {len(by_name) - NOTED_SHOWN_MAX} more names (--json has all)"


def _steps_of(log: Log) -> str:
    from steadytrain.report.wording import count

    steps = log.window.steps
    if not len(steps):
        return "no steps"
    first, last = int(steps[0]), int(steps[-1])
    if len(steps) == 1:
        return f"1 step (number {first})"
    numbers = f" ({first} to {last})" if (first, last) != (1, len(steps)) else ""
    return f"{count(len(steps))} steps{numbers}"


def _loss_of(log: Log) -> Iterator[Text]:
    """The loss as one line of block characters."""
    from rich.text import Text

    from steadytrain.report.log_report import loss_curve
    from steadytrain.report.thinned_curves import NOT_FINITE
    from steadytrain.report.wording import number

    loss = loss_curve(log.window)
    if loss is None:
        return
    line = Text.assemble(("loss (log) " if loss.logarithmic else "loss ", _DIM), (loss.spark, "cyan"))
    if loss.smallest is not None and loss.largest is not None:
        line.append(f"  {number(loss.smallest)} to {number(loss.largest)}")
    if loss.not_finite:
        line.append(f"  {NOT_FINITE} {loss.not_finite:,} not finite", style="bold red")
    yield line


# Pages.


def _check_writable(html: Path) -> None:
    if html.is_dir():
        raise UsageError(f"{html}: this is a folder; name a file with --html FILE.html")
    if not html.absolute().parent.is_dir():
        raise UsageError(f"{html.parent}: no such folder to write {html.name} into; make it first")


def _write_pages(judged: Sequence[AnalyzedRun], html: Path) -> list[tuple[Path, int]]:
    """Write a page for each run (the first ``PAGES_MAX``). Returns paths and sizes."""
    from steadytrain.core.version import __version__
    from steadytrain.report.html import page
    from steadytrain.report.log_report import from_log
    from steadytrain.report.page_file import write_page
    from steadytrain.report.zoom import zoom

    written = []
    for number, entry in enumerate(judged[:PAGES_MAX], start=1):
        report = from_log(entry.log, entry.judgement)
        safe = re.sub(r"[^A-Za-z0-9._-]+", "-", entry.log.name).strip("-")[:80]
        path = html if len(judged) == 1 else html.with_name(f"{html.stem}-{number}-{safe}{html.suffix or '.html'}")
        written.append((path, write_page(path, page(report, zoom(redact_value(report)), version=__version__))))
    if len(judged) > PAGES_MAX:
        say(f"steadytrain: {len(judged)} runs; pages were written for the first {PAGES_MAX}", err=True)
    return written


def _one_line(text: str) -> str:
    from steadytrain.report.wording import clean

    return clean(text, length_max=1_000)
