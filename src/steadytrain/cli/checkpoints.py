"""``steadytrain checkpoints``: which checkpoints of a run are good."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steadytrain.cli import _options
from steadytrain.cli._output import say_document, say_lines
from steadytrain.core.errors import UsageError

if TYPE_CHECKING:
    from steadytrain.report.saved_checkpoints import Checkpoint
    from steadytrain.storage.run_folder import Run

SHOWN_MAX = 30


@click.command()
@click.argument("target", required=False, metavar="[RUN]")
@_options.runs_dir
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.checkpoints/1).")
def command(target: str | None, runs_dir: Path, as_json: bool) -> None:
    """List the checkpoints that a run wrote, and say which is the last good one.

    RUN is a run folder or the name of a run under --runs-dir, by default the newest. A checkpoint is good if all values
    are finite and no symptom that spoils weights was going on when it was written. The last good ones are kept below
    the run folder when the script removes or overwrites them (`run --checkpoints-mb`). Needs no PyTorch. Exits with 0
    if there is a good one, with 1 if there is none.
    """
    from steadytrain.report.saved_checkpoints import last_good, saved_checkpoints
    from steadytrain.storage.bundle import is_bundle
    from steadytrain.storage.run_folder import open_run
    from steadytrain.storage.run_search import find

    path = find(target, runs_dir)
    if is_bundle(path):
        raise UsageError(f"{path} is an incident; name its run: steadytrain checkpoints {path.parent.parent}")
    run = open_run(path)
    found = saved_checkpoints(run)
    good = last_good(found)
    if as_json:
        say_document(_document(run, found, good), ensure_ascii=True)
    else:
        say_lines("\n".join(_lines(run, found, good)))
    click.get_current_context().exit(0 if good is not None else 1)


def _document(run: Run, found: list[Checkpoint], good: Checkpoint | None) -> dict[str, Any]:
    return {
        "schema": "steadytrain.checkpoints/1",
        "run": run.name,
        "path": str(run.path),
        "last_good": {"step": good.step, "path": good.kept_at} if good is not None else None,
        "checkpoints": [one.to_json() for one in found],
    }


def _lines(run: Run, found: list[Checkpoint], good: Checkpoint | None) -> list[str]:
    from steadytrain.report.wording import clean

    if not found:
        return [f"{clean(run.name)}: no checkpoint was seen; nothing was saved through torch.save or safetensors"]
    lines = [f"{clean(run.name)}"]
    if len(found) > SHOWN_MAX:
        lines.append(f"  the last {SHOWN_MAX} of {len(found):,}; all of them: --json")
    for one in found[-SHOWN_MAX:]:
        lines.append(f"  step {one.step:,}  {one.verdict}  {clean(one.path or 'not to a file')}")
        lines.append(f"    {clean(one.why)}" + ("" if one.kept_at else "; its content is gone"))
        if one.touched:
            lines.append(f"    steadytrain had changed the run: {clean(one.touched)}")
    if good is None:
        return [*lines, "no good checkpoint is left"]
    return [*lines, f"last good: step {good.step:,}  {clean(good.kept_at or '')}"]
