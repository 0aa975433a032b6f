"""``steadytrain audit``: check a checkpoint against the run."""

from __future__ import annotations

import importlib.util
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli._next import say_next_of
from steadytrain.cli._output import say_document, say_lines
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.compare.audit import Audit

DIFFERS_STATUS = 1
SHOWN_MAX = 40


@click.command()
@click.argument("checkpoint", type=click.Path(path_type=Path))
@click.option("--run", "run_name", help="Run that saved the checkpoint: a folder, or a name under --runs-dir.")
@click.option("--against", type=click.Path(path_type=Path), help="Reference checkpoint.")
@_options.page_output
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.audit/1).")
def command(
    checkpoint: Path, run_name: str | None, against: Path | None, output: Path | None, runs_dir: Path, as_json: bool
) -> int:
    """Check a checkpoint against the run that saved it or another checkpoint.

    Finds weights, moments, step counters, optimizer settings, scheduler, scaler, random states and data position that
    are missing, swapped, reshaped, cast or stale. Without --run and --against it checks the checkpoint alone.
    CHECKPOINT is a file of torch.save, safetensors or Lightning, or a folder of the Hugging Face Trainer, Accelerate or
    torch.distributed.checkpoint. No code in it is executed. Exits with 0 if all is as expected, 1 if not, or
    if there was nothing to compare with.
    """
    if run_name is not None and against is not None:
        raise UsageError("--run and --against: give only one of them")
    if importlib.util.find_spec("torch") is None:
        raise UsageError("audit needs PyTorch to read checkpoints; install it, or run this where the training ran")
    result = _audited(checkpoint, run_name, against, runs_dir)
    if output is not None:
        _write(output, result, run_name, runs_dir)
    if as_json:
        say_document(result.to_json())
    else:
        say_lines("\n".join(_lines(result)))
        if run_name is not None and not result.clean:
            from steadytrain.storage.run_search import find

            say_next_of("checkpoints", find(run_name, runs_dir), why="the other ones that the run saved")
    return 0 if result.clean and result.compared else DIFFERS_STATUS


def _write(output: Path, result: Audit, run_name: str | None, runs_dir: Path) -> None:
    from steadytrain.core.version import __version__
    from steadytrain.report.checks_page import audit_page
    from steadytrain.report.page_file import write_page
    from steadytrain.storage.documents import redact_value
    from steadytrain.storage.run_search import find

    command = ""
    if run_name is not None:
        command = f"steadytrain checkpoints {shlex.quote(str(find(run_name, runs_dir)))}"
    write_page(output, audit_page(redact_value(result.to_json()), command, version=__version__))


def _audited(checkpoint: Path, run_name: str | None, against: Path | None, runs_dir: Path) -> Audit:
    from steadytrain.checkpoints import read_checkpoint
    from steadytrain.checkpoints.own_states import states_of
    from steadytrain.compare.audit import audit
    from steadytrain.compare.references import batches_taken, cards_of, loads_of, names_of, reference, with_batches
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_folder import open_run
    from steadytrain.storage.run_search import find

    if run_name is not None:
        path = find(run_name, runs_dir)
        if is_bundle(path):
            raise UsageError(f"{path}: an incident; give its run to --run")
        run = open_run(path)
        cards = cards_of(run)
        found = read_checkpoint(checkpoint, names=names_of(run, cards))
        if found.step is not None and all(card.step != found.step for card in cards):
            cards = [*cards, *states_of(run, found.step)]
        expected = reference(run, found, cards)
        held, told = with_batches(expected.expected, found, batches_taken(run, found))
        notes = [note for note in (expected.note, told) if note]
        return audit(found, held, others=expected.others, notes=notes, loads=loads_of(run))
    if against is None:
        return audit(read_checkpoint(checkpoint))
    trusted = read_checkpoint(against)
    names = None
    if trusted.named and trusted.settings:
        names = [name for group in trusted.settings for name in group["parameters"]]
    found = read_checkpoint(checkpoint, names=names)
    if found.named and not trusted.named and found.settings:
        trusted = read_checkpoint(against, names=[name for group in found.settings for name in group["parameters"]])
    return audit(found, trusted)


def _lines(result: Audit) -> list[str]:
    from steadytrain.report.wording import clean

    step = "" if result.found.step is None else f", step {result.found.step}"
    lines = [f"checkpoint  {clean(result.found.source)} ({result.found.kind}{step})"]
    if result.against is not None:
        lines.append(f"against     {clean(result.against.source)}")
    for part in result.parts:
        if part.held is None and part.expected is None:
            continue
        lines.append(f"  {part.name:<11}{_count(part.held, part.expected, part.agree, alone=result.against is None)}")
    for load in result.loads:
        lost = "; ".join(map(clean, load.get("lost") or ())) or "nothing lost"
        lines.append(f"  the run loaded {clean(load.get('class'))} ({clean(load.get('what'))}): {lost}")
    lines += [f"  note: {clean(note)}" for note in result.notes]
    many = len(result.differences)
    if not result.compared:
        lines.append("nothing could be compared: there is no record of what this file holds")
    else:
        lines.append("all as expected" if not many else f"{many} difference{'s' if many > 1 else ''}")
    for difference in result.differences[:SHOWN_MAX]:
        lines.append(f"  {difference.kind:<13}{difference.part}: {clean(difference.message)}")
    if many > SHOWN_MAX:
        lines.append(f"  and {many - SHOWN_MAX} more; --json lists all")
    return lines


def _count(held: int | None, expected: int | None, agree: int, *, alone: bool) -> str:
    if held is None:
        return "not in this format"
    if alone:
        return f"{held:,}"
    if expected is None:
        return f"{held:,}, nothing to compare with"
    return f"{agree:,} of {expected:,} as expected"
