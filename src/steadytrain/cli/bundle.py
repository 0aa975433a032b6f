"""``steadytrain bundle``: what an incident bundle holds, and a smaller one to send."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from steadytrain.cli import _options
from steadytrain.cli._next import say_next
from steadytrain.cli._output import say, say_document
from steadytrain.cli._standard_output import a_folder

if TYPE_CHECKING:
    from steadytrain.storage.bundle_contents import Contents


@click.group()
def command() -> None:
    """Look at an incident bundle before you send it, or make a smaller one.

    `inspect` lists its rows, text, weights and code with their sizes. `strip` copies it without data or weights.
    """


def _found(path: Path, runs_dir: Path) -> Path:
    """The bundle at ``path``, which may be the short name of one under ``runs_dir``."""
    from steadytrain.storage.run_search import find

    return path if path.exists() else find(str(path), runs_dir)


@command.command("inspect")
@click.argument("path", type=click.Path(path_type=Path))
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.bundle-contents/1).")
def inspect(path: Path, runs_dir: Path, as_json: bool) -> int:
    """List what the bundle at PATH holds: rows, text, weights, code, settings, and each file. PATH may be a short name,
    such as RUN/step-000119."""
    from steadytrain.storage.bundle_contents import inspect_bundle

    path = _found(path, runs_dir)
    contents = inspect_bundle(path)
    if as_json:
        say_document(contents.to_json())
    else:
        say("\n".join(_lines(contents)))
        if contents.size_of("data") or contents.size_of("weights"):
            smaller = f"{path.resolve().name}-stripped"
            say_next("bundle", "strip", str(path), "--no-data", "--no-weights", "-o", smaller, why="before you send it")
        else:
            say_next("show", str(path))
    return 0


@command.command("strip")
@click.argument("path", type=click.Path(path_type=Path))
@_options.runs_dir
@click.option("--no-data", is_flag=True, help="Leave out the recorded batches: tensors and text.")
@click.option("--no-weights", is_flag=True, help="Leave out weights, optimizer state and snapshots.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path),
    callback=a_folder,
    help="Folder to write; it must not exist.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.bundle-contents/1).")
def strip(path: Path, runs_dir: Path, no_data: bool, no_weights: bool, output: Path, as_json: bool) -> int:
    """Copy the bundle at PATH without its data or its weights, and say what can no longer be done with the copy."""
    from steadytrain.storage.bundle_contents import REPLAY_NEEDS_DATA, REPLAY_NEEDS_WEIGHTS, strip_bundle

    contents = strip_bundle(_found(path, runs_dir), output, data=no_data, weights=no_weights)
    if as_json:
        say_document(contents.to_json())
        return 0
    say(f"{output}: {contents.size_bytes:,} bytes")
    for left_out, lost in ((no_data, REPLAY_NEEDS_DATA), (no_weights, REPLAY_NEEDS_WEIGHTS)):
        if left_out:
            say(f"  without {'data' if lost is REPLAY_NEEDS_DATA else 'weights'}: {lost}")
    say_next("show", str(output))
    return 0


def _lines(contents: Contents) -> Iterator[str]:
    from steadytrain.report.wording import clean

    yield f"{clean(contents.path)}: step {contents.step} of {clean(contents.run)}, {contents.size_bytes:,} bytes"
    rows, text, weights = contents.rows, contents.text, contents.weights
    facts = {
        "rows": f"{rows['calls']} recorded calls, {rows['tensors']} tensors of {rows['values']:,} values, "
        f"{contents.size_of('data'):,} bytes",
        "text": f"{text['strings']} strings of {text['characters']:,} characters among the recorded values",
        "weights": f"{weights['tensors']} tensors of {weights['values']:,} values, "
        f"{contents.size_of('weights'):,} bytes",
        "code": f"{contents.code['diff_lines']} lines of the diff to the commit, "
        f"{contents.code['quoted_lines']} quoted lines",
        "settings": ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in contents.settings.items()),
        "left out": ", ".join(contents.left_out) or "nothing",
    }
    for name, fact in facts.items():
        yield f"  {name:<10} {fact}"
    for file in contents.files:
        yield f"  {file.size_bytes:>14,}  {file.kind:<12}  {clean(file.name)}"
