"""Options that several commands share, each told in the same words."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

runs_dir = click.option("--runs-dir", default="steadytrain-runs", show_default=True, help="Folder of run folders.")
tree = click.option(
    "--tree", "moved", default="-", metavar="OLD=NEW", help="Take the files under OLD from the folder NEW."
)
workers = click.option("--workers", type=int, help="Trials at a time; by default one per processor, at most 4.")
engine = click.option("--engine", type=click.Choice(["local", "ray"]), default="local", show_default=True)
symptom = click.option(
    "--symptom", metavar="NAME", help="The symptom to look at; by default the gravest that began first."
)
onset = click.option(
    "--onset", type=int, metavar="STEP", help="The step at which it began, where that is known better."
)


def launches(body: Callable[..., int]) -> Callable[..., int]:
    """Of a command that launches processes: it ends them and takes its folders away, also where it is ended itself."""

    @wraps(body)
    def in_order(*arguments: Any, **options: Any) -> int:
        from steadytrain.replay.child_processes import ending_in_order

        with ending_in_order():
            return body(*arguments, **options)

    return in_order
