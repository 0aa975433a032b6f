"""``steadytrain checklist``: five questions about a run or an incident, and what was done to answer each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli._next import say_next_line
from steadytrain.cli._output import say_document, say_lines

if TYPE_CHECKING:
    from steadytrain.method.ticks import Checklist

MARKS: dict[str, str] = {"done": "x", "not-needed": "-", "open": " "}
LEGEND = "[x] done   [-] not needed: the first line says why   [ ] open"


@click.command()
@click.argument("target", required=False, metavar="[RUN|INCIDENT]")
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.checklist/1).")
def command(target: str | None, runs_dir: Path, as_json: bool) -> None:
    """Show what was done about a run, and what is left to do.

    Five questions: Is there a minimal reproduction? Were the data tested? Were gradients and activations recorded? Was
    the precision tried? Were learning rate, warm-up and clipping tried? Each is done, with its evidence (which command
    or trial, its result, the day), not needed, with the reason, or open, with the command that would answer it. RUN is
    by default the newest; of a run, results of all its incidents count. Reads only what is on disk and needs no
    PyTorch. Exits with 0 whatever the answers.
    """
    from steadytrain.api.method_steps import checklist

    found = checklist(target, runs_dir=runs_dir)
    if as_json:
        say_document(found.to_json())
    else:
        say_lines("\n".join(_lines(found)))
        asked = found.next in [tick.command for tick in found.ticks]
        say_next_line(found.next, "what is left to do" if asked else "the evidence on one page")


def _lines(found: Checklist) -> list[str]:
    from steadytrain.core.own_command import pasteable
    from steadytrain.report.wording import clean

    lines = [LEGEND]
    for tick in found.ticks:
        lines.append(f"[{MARKS[tick.state]}] {tick.title}")
        lines += [f"      {clean(line)}" for line in tick.evidence]
        lines += [f"      next: {pasteable(clean(tick.command))}"] if tick.command is not None else []
    counts = [(sum(tick.state == state for tick in found.ticks), state.replace("-", " ")) for state in MARKS]
    told = ", ".join(f"{number} {words}" for number, words in counts if number or words == "done")
    return [*lines, f"of {len(found.ticks)}: {told}; for {clean(found.target)}"]
