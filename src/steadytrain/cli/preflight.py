"""``steadytrain preflight``: find faults before the first update."""

from __future__ import annotations

import importlib.util
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options
from steadytrain.cli._misspelt import no_option
from steadytrain.cli._next import next_line
from steadytrain.core.bounded_files import DOCUMENT_BYTES_MAX, read_json
from steadytrain.core.errors import UsageError
from steadytrain.storage.documents import as_json
from steadytrain.storage.redaction import redact_tree

if TYPE_CHECKING:
    from steadytrain.capture.hooks.launch import Target
    from steadytrain.preflight_runs.session import Wanted

FAILED_STATUS = 1
USAGE_STATUS = 2


@dataclass(frozen=True)
class PreflightOptions:
    """What is checked, and where the result goes."""

    only: tuple[str, ...]
    skip: tuple[str, ...]
    thorough: bool
    then_run: bool
    as_json: bool
    junit: Path | None
    sarif: Path | None
    output: Path | None
    baseline: Path | None
    wait_s: float
    runs_dir: Path
    name: str | None

    def __post_init__(self) -> None:
        if self.wait_s <= 0:
            raise UsageError(f"--wait-s {self.wait_s}: must be more than 0")
        if self.as_json and self.then_run:
            raise UsageError("--json with --then-run: stdout belongs to the script; the document is in the run folder")
        if self.name is not None and not self.then_run:
            raise UsageError(f"--name {self.name}: no run is made that could have it; add --then-run, or leave it out")

    def wanted(self) -> Wanted:
        """The requested checks. Reports unknown names before the script starts, without importing torch."""
        from steadytrain.checks.subject.model_check import CHECKS
        from steadytrain.preflight_runs.session import Wanted, check_names

        wanted = Wanted(check_names(self.only), check_names(self.skip), self.thorough)
        if wanted.only and set(wanted.only) <= set(wanted.skip):
            raise UsageError(f"--skip {','.join(wanted.skip)}: it leaves none of --checks; give one of the two")
        if not {*wanted.only, *wanted.skip} <= set(CHECKS.names()):
            from steadytrain.preflight_runs.check_catalog import chosen

            chosen(wanted.only, wanted.skip)
        return wanted


@dataclass(frozen=True)
class Outlets:
    """Destinations of the document besides the terminal. ``known`` is the baseline, None if there is none yet."""

    baseline: Path | None
    known: dict[str, Any] | None
    junit: Path | None
    sarif: Path | None
    page: Path | None

    def settle(self, document: dict[str, Any], following: tuple[str, ...] = ()) -> dict[str, Any]:
        """Compare with the baseline, and write the requested files."""
        from steadytrain.report.preflight import as_junit, as_sarif, with_baseline

        if self.baseline is not None and self.known is None:
            _write(self.baseline, as_json(document, indent=1, ensure_ascii=False) + "\n")
        if self.known is not None:
            document = with_baseline(document, self.known)
        for path, rendered in ((self.junit, as_junit), (self.sarif, as_sarif)):
            if path is not None:
                _write(path, rendered(document))
        if self.page is not None:
            from steadytrain.report.checks_page import preflight_page

            command = shlex.join(("steadytrain", *following)) if following else ""
            _write(self.page, preflight_page(redact_tree(document), command))
        return document


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    options_metavar="[OPTIONS]",
)
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is a module, run as `python -m` runs it.")
@click.option("--checks", "only", multiple=True, metavar="A,B", help="Only these checks; all by default.")
@click.option("--skip", multiple=True, metavar="A,B", help="Skip these checks.")
@click.option(
    "--full/--fast", "thorough", default=False, help="Longer trainings that take minutes, or less than one minute."
)
@click.option("--then-run", is_flag=True, help="If no check failed, continue as a watched run.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.preflight/1).")
@click.option("--junit", type=click.Path(path_type=Path), help="Also write the outcome as JUnit XML.")
@click.option("--sarif", type=click.Path(path_type=Path), help="Also write the outcome as SARIF 2.1.0.")
@_options.page_output
@click.option(
    "--baseline",
    type=click.Path(path_type=Path),
    help="Document of an earlier preflight: its findings stay hidden until they change. Created if missing.",
)
@click.option("--wait-s", default=900.0, show_default=True, help="Time limit up to the script's first step.")
@_options.runs_dir
@_options.allow_network
@click.option("--name", default=None, help="Name of the --then-run run.")
@click.argument("script", callback=no_option)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@_options.gathered(lambda: PreflightOptions, into="options")
def command(as_module: bool, script: str, arguments: tuple[str, ...], options: PreflightOptions) -> int:
    """Check model, loss, data and optimizer in the first steps of SCRIPT.

    SCRIPT runs unchanged to its first optimizer steps; its files go to a scratch folder. The checks work on copies and
    restore the script's state bit for bit. Then the process ends, without the script's exit code. Exits with 1 if a
    check failed, 2 if nothing could be checked. The script's output goes to stderr. Put options before SCRIPT.
    """
    from steadytrain.capture.hooks.launch import module_target, script_target
    from steadytrain.preflight_runs.session import run_script

    target = module_target(script, arguments) if as_module else script_target(script, arguments)
    if importlib.util.find_spec("torch") is None:
        raise UsageError(f"preflight needs PyTorch and {sys.executable} has none; install torch in this environment")
    wanted = options.wanted()
    outlets = Outlets(options.baseline, _read_baseline(options.baseline), options.junit, options.sarif, options.output)
    if options.then_run:
        return _then_run(target, wanted, outlets, runs_dir=options.runs_dir, name=options.name)
    stdout = os.dup(1)
    os.dup2(2, 1)  # the script's output is not the result

    def emit(document: dict[str, Any]) -> int:
        from steadytrain.report.preflight import as_text, fails

        document = redact_tree(outlets.settle(document, _next_words(document, target)))
        text = as_json(document, indent=1, ensure_ascii=False) + "\n" if options.as_json else as_text(document)
        if not options.as_json and (words := _next_words(document, target)):
            text += f"{next_line(*words)}\n"
        sys.stdout.flush()
        _write_all(stdout, text.encode())
        if document["checks"] and document["counts"]["not-run"] == len(document["checks"]):
            print(f"steadytrain: {target.name}: none of the checks could be run", file=sys.stderr, flush=True)
            return USAGE_STATUS
        return FAILED_STATUS if fails(document) else 0

    return run_script(target, wanted, emit, wait_s=options.wait_s)


def _next_words(document: dict[str, Any], target: Target) -> tuple[str, ...]:
    """What a failed check means; else the training itself, if anything was checked."""
    states = {check["name"]: check["status"] for check in document["checks"]}
    failed = [name for name, status in states.items() if status == "fail"]
    if failed:
        return ("explain", failed[0])
    if set(states.values()) <= {"not-run"}:
        return ()
    return ("run", *target.command)


def _then_run(target: Target, wanted: Wanted, outlets: Outlets, *, runs_dir: Path, name: str | None) -> int:
    from steadytrain.attach import Options, run_target
    from steadytrain.preflight_runs.session import guest
    from steadytrain.report.preflight import as_text, fails

    seen: list[dict[str, Any]] = []

    def take(document: dict[str, Any]) -> None:
        document = redact_tree(outlets.settle(document))
        seen.append(document)
        print(as_text(document), file=sys.stderr, end="", flush=True)
        if fails(document):
            print("steadytrain: a check failed: the run does not start (--skip, --baseline)", file=sys.stderr)
            raise SystemExit(FAILED_STATUS)

    status = run_target(target, Options(runs_dir=runs_dir, name=name), guest=guest(target.name, wanted, take))
    if not seen:
        raise UsageError(f"{target.name}: the script ended before its first optimizer step; nothing was checked")
    return status


def _read_baseline(path: Path | None) -> dict[str, Any] | None:
    if path is None or not path.exists():
        return None
    try:
        document = read_json(path, bytes_max=DOCUMENT_BYTES_MAX)
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: not a baseline ({error}); name a document of `preflight --json`") from None
    if not isinstance(document, dict) or document.get("schema") != "steadytrain.preflight/1":
        raise UsageError(f"{path}: not a baseline; name a document of `preflight --json`")
    return document


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        print(f"steadytrain: warning: {path} cannot be written ({error.strerror})", file=sys.stderr)


def _write_all(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]
