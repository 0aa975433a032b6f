"""``steadytrain gate``: pass or fail for CI, with reasons and in the formats of CI systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli._output import say, say_document, say_lines
from steadytrain.core.errors import UsageError
from steadytrain.storage.documents import redact_value

if TYPE_CHECKING:
    from steadytrain.gate.result import GateResult

FAIL_STATUS = 1
GITHUB_VARIABLE = "GITHUB_ACTIONS"
_MARKS = {"pass": "pass", "fail": "FAIL", "unknown": "UNKNOWN"}


@dataclass(frozen=True)
class Files:
    """The files to write, each None if it was not asked for."""

    junit: Path | None
    sarif: Path | None
    markdown: Path | None

    def given(self) -> Iterator[tuple[str, Path]]:
        for name in ("junit", "sarif", "markdown"):
            path = getattr(self, name)
            if path is not None:
                yield name, path


@click.command()
@click.argument("targets", nargs=-1, required=True, metavar="RUN|LOG...")
@click.option(
    "--policy", type=click.Path(path_type=Path), metavar="FILE", help="What must hold, as TOML (docs/gate.md)."
)
@click.option(
    "--reference",
    multiple=True,
    metavar="RUN|LOG",
    help="A run that differs only by its seed; give three or more. Fails a run above what one more of them shows.",
)
@_options.runs_dir
@_options.as_json
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write JUnit XML.")
@click.option("--sarif", type=click.Path(path_type=Path), metavar="FILE", help="Also write SARIF 2.1.0.")
@click.option("--markdown", type=click.Path(path_type=Path), metavar="FILE", help="Also write Markdown.")
@click.option(
    "--github", is_flag=True, help="Print annotations for GitHub Actions; by default if GITHUB_ACTIONS is true."
)
@_options.gathered(lambda: Files, into="files")
def command(
    targets: tuple[str, ...],
    policy: Path | None,
    reference: tuple[str, ...],
    runs_dir: Path,
    as_json: bool,
    github: bool,
    files: Files,
) -> int:
    """Pass or fail runs and logs for CI, with reasons.

    Without a policy a run must have finished, with no critical symptom, no warning of what the script itself does (such
    as gradients that are never cleared), no cause that `steadytrain diagnose` confirmed, no loss that is NaN or Inf,
    and no update refused, skipped or otherwise changed by steadytrain. A log of another tool is judged by its symptoms
    and losses. What cannot be answered does not pass.

    RUN is a run folder or the name of a run under --runs-dir, LOG what `steadytrain analyze` reads. Reads only what is
    on disk and needs no PyTorch. Exits with 0 if all pass, 1 if one does not, 2 if an argument or policy is wrong.
    """
    from steadytrain.api.gates import gate
    from steadytrain.gate.ci_formats import FORMATS, github_annotations
    from steadytrain.report.page_file import write_pages

    places: dict[Path, str] = {}
    for name, path in files.given():
        if path == Path("-"):
            raise UsageError(f"--{name} -: the verdict goes to standard output; name a file")
        _check_writable(path)
        if (other := places.setdefault(path.absolute(), name)) != name:
            raise UsageError(f"--{other} and --{name}: both write to {path}; name two files")
    result = redact_value(gate(*targets, policy=policy, reference=reference, runs_dir=runs_dir))
    write_pages({path: FORMATS[name](result) for name, path in files.given()})
    on_github = github or os.environ.get(GITHUB_VARIABLE) == "true"
    if as_json:
        say_document(result.to_json(), ensure_ascii=True)
    else:
        say_lines("\n".join(_lines(result)))
    for line in github_annotations(result) if on_github else ():
        say(line, err=as_json)
    return 0 if result.passed else FAIL_STATUS


def _lines(result: GateResult) -> Iterator[str]:
    from steadytrain.gate.ci_formats import without_commands
    from steadytrain.report.wording import clean

    for run in result.runs:
        yield without_commands(f"{'passed' if run.passed else 'FAILED'}  {clean(run.run)}")
        width = max(len(check.name) for check in run.checks)
        for check in run.checks:
            yield without_commands(f"  {_MARKS[check.status]:<8} {check.name:<{width}}  {clean(check.reason)}")
    for line in result.unreadable:
        yield without_commands(f"NOT READ  {clean(line)}")
    passed = sum(run.passed for run in result.runs)
    yield f"gate {'passed' if result.passed else 'FAILED'}: {passed} of {len(result.runs)} runs passed"


def _check_writable(path: Path) -> None:
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"{path}: cannot be written; name a file in a folder that is there")
