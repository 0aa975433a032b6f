"""``steadytrain check-data``: checks of training data without a model, as text or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options, _terminal
from steadytrain.cli._next import say_next
from steadytrain.cli._output import say_document
from steadytrain.core.errors import UsageError
from steadytrain.core.visible_text import visible
from steadytrain.storage.documents import redact_value

if TYPE_CHECKING:
    from rich.console import RenderableType

    from steadytrain.checks.data.data_check import Finding, Tell
    from steadytrain.checks.data.data_pass import Report
    from steadytrain.checks.data.sources import Wanted

FAILED_STATUS = 1
FAST_ROWS = 10_000
EXAMPLES_SHOWN = 3

_STYLES = {"fail": "bold red", "warn": "bold yellow", "not-run": "dim", "pass": "green"}


@dataclass(frozen=True)
class DataOptions:
    """Settings for the data: see the options of the command."""

    tokenizer: str | None
    text: str | None
    labels: str | None
    length: int | None
    dtype: str | None
    vocabulary: int | None
    against: str | None
    limit: int | None
    fast: bool

    def __post_init__(self) -> None:
        from steadytrain.checks.data.formats.token_file import DTYPES

        if self.dtype is not None and self.dtype not in DTYPES:
            raise UsageError(f"--dtype {self.dtype}: not a type of tokens; one of {', '.join(DTYPES)}")

    @property
    def rows_max(self) -> int | None:
        """Number of rows to read, None for all."""
        return min(self.limit or FAST_ROWS, FAST_ROWS) if self.fast else self.limit

    def wanted(self, what: str, limit: int | None) -> Wanted:
        from steadytrain.checks.data.data_check import Options
        from steadytrain.checks.data.sources import Wanted

        return Wanted(what, limit, self.text, self.labels, Options(self.dtype, self.length))


@click.command()
@click.argument("what", metavar="PATH|MODULE:DATASET")
@click.option(
    "--tokenizer", metavar="PATH|NAME", help="A tokenizer.json, its folder, or a name cached on this machine."
)
@click.option("--text", metavar="FIELD", help="Field with the text, if the guess is wrong.")
@click.option("--labels", metavar="FIELD", help="Field with the labels: one per row, or one per token.")
@click.option(
    "--length", type=click.IntRange(min=1), metavar="N", help="Context length in tokens; also the row length of a .bin."
)
@click.option("--dtype", metavar="TYPE", help="Number type of a .bin file: uint16 (default), uint32, int32, ...")
@click.option(
    "--vocabulary", type=click.IntRange(min=1), metavar="N", help="Rows of the embedding, if not the tokenizer's."
)
@click.option("--against", metavar="PATH", help="A test split that must share no row with the data.")
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="Read the first N rows only.")
@click.option("--fast", is_flag=True, help=f"Read the first {FAST_ROWS:,} rows only.")
@click.option(
    "--keep-with", metavar="RUN|INCIDENT", help="Keep the result with this run, for `checklist`, `debug`, `gate`."
)
@_options.page_output
@_options.as_json
@_options.gathered(lambda: DataOptions, into="options")
def command(what: str, keep_with: str | None, output: Path | None, as_json: bool, options: DataOptions) -> int:
    """Check data before you train on it.

    PATH is JSON Lines (also .gz), Parquet, Arrow, a dataset that Hugging Face's datasets saved, tokens in .bin or .npy,
    CSV, or a folder of such files; MODULE:DATASET any iterable or dataset that Python can import. The command reads it
    once, some rows at a time. docs/check-data.md lists the checks.

    Exits with 0, with 1 if a check failed, with 2 if it cannot read the data.
    """
    from steadytrain.checks.data.data_check import Circumstances
    from steadytrain.checks.data.data_pass import look_at
    from steadytrain.checks.data.tokenizing import tokenizer_at

    place = _place(keep_with) if keep_with is not None else None
    known = tokenizer_at(options.tokenizer) if options.tokenizer is not None else None
    size = options.vocabulary if options.vocabulary is not None else (known.size or None) if known is not None else None
    circumstances = Circumstances(known, size, options.length)
    wanted = options.wanted(what, options.rows_max)
    other = options.wanted(options.against, None) if options.against is not None else None
    with _progress(what) as tell:
        report = look_at(wanted, circumstances, against=other, tell=tell)
    if place is not None:
        _keep(place, report)
    if output is not None:
        _write(output, report)
    if as_json:
        say_document(document(report), ensure_ascii=True)
    else:
        _print(report)
        worst = next((finding for status in ("fail", "warn") for finding in report.of_status(status)), None)
        if worst is not None:
            say_next("explain", worst.check, why="what it means, and what to do")
    return FAILED_STATUS if report.status == "fail" else 0


def _place(target: str) -> Path:
    """The run or incident of that name or path, looked for before the data are read."""
    from steadytrain.storage.run_search import RUNS_DIR_DEFAULT, find

    return find(target, Path(RUNS_DIR_DEFAULT))


def _keep(place: Path, report: Report) -> None:
    from steadytrain.experiments.command_results import CommandResult, keep_result

    name = Path(report.source.name).name or report.source.name
    keep_result(place, CommandResult(f"check-data {name}", True, report.summary, report.status))


def _write(output: Path, report: Report) -> None:
    from steadytrain.core.version import __version__
    from steadytrain.report.checks_page import data_page
    from steadytrain.report.page_file import write_page

    write_page(output, data_page(redact_value(document(report)), version=__version__))


def document(report: Report) -> dict[str, Any]:
    """The ``steadytrain.data/1`` document."""
    tokenizer = report.circumstances.tokenizer
    return {
        "schema": "steadytrain.data/1",
        "source": report.source.name,
        "kind": report.source.kind,
        "files": len(report.source.files),
        "bytes": report.source.size_bytes,
        "rows": report.rows,
        "tokens": report.tokens,
        "whole": report.whole,
        "status": report.status,
        "fields": report.roles.to_json(),
        "tokenizer": None
        if tokenizer is None
        else {"name": tokenizer.name, "size": tokenizer.size, "digests": tokenizer.parts},
        "findings": [finding.to_json() for finding in report.findings],
        "notes": list(report.notes),
    }


@contextmanager
def _progress(what: str) -> Iterator[Tell]:
    """A progress bar on a terminal, otherwise nothing."""
    if not sys.stderr.isatty():
        yield lambda name, done, size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(file=_terminal.plain(sys.stderr)), transient=True) as bar:
        task = bar.add_task(visible(Path(what).name), total=None)
        yield lambda name, done, size: bar.update(task, description=visible(name), completed=done, total=size or None)


# Text.


def _print(report: Report) -> None:
    from rich.text import Text

    report = redact_value(report)
    parts: list[RenderableType] = [Text(line) for line in _head(report)]
    for status in ("fail", "warn", "pass"):
        for finding in report.of_status(status):
            told = f"  {finding.check}: {finding.judgement.message}"
            parts.append(Text.assemble((f"{status:>4}", _STYLES[status]), told))
            parts += _details(finding) if status != "pass" else []
    skipped = report.of_status("not-run")
    if skipped:
        parts.append(Text())
    for finding in skipped:
        parts.append(Text(f"not run  {finding.check}: {finding.judgement.message}", style="dim"))
    _terminal.show(*parts)


def _head(report: Report) -> Iterator[str]:
    rows = f"{report.rows:,} rows" if report.whole else f"the first {report.rows:,} rows"
    tokens = f", {report.tokens:,} tokens" if report.tokens is not None else ""
    name = Path(report.source.name).name or report.source.name
    yield f"{name}: {rows}{tokens}, {report.source.kind}"
    roles = report.roles.to_json()
    if roles:
        told = (f"{what} {', '.join(name) if isinstance(name, list) else name}" for what, name in roles.items())
        yield "  fields: " + "; ".join(told)
    for note in report.notes:
        yield f"  {note}"
    yield ""


def _details(finding: Finding) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    for line in _detail_lines(finding):
        yield Padding(Text(line, style="dim"), (0, 0, 0, 8))


def _detail_lines(finding: Finding) -> Iterator[str]:
    for example in finding.judgement.examples[:EXAMPLES_SHOWN]:
        identity = f", id {example.identity}" if example.identity is not None else ""
        why = f" ({example.why})" if example.why else ""
        yield f"row {example.row}, {example.place}{identity}{why}: {example.text}"
    yield f"Next: {finding.next}"
