"""``steadytrain collectives``: which rank did not call the collective that the others wait in."""

from __future__ import annotations

from pathlib import Path

import click

from steadytrain.cli._output import say, say_document, say_lines

SHOWN_MAX = 8


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document (steadytrain.collectives/1).")
def command(paths: tuple[Path, ...], as_json: bool) -> int:
    """Name the collective that the ranks of a hanging job do not agree on, and the rank that differs.

    PATH is a record of torch's flight recorder (one file for each rank: a pickle, or JSON), a folder of such files, or
    the folder of a run that stalled or failed between ranks. No pickle can run code here. torch writes the records when
    a collective times out, where TORCH_FR_DUMP_TEMP_FILE or TORCH_NCCL_DEBUG_INFO_TEMP_FILE points.

    Exits with 0 if the ranks agree, 1 if they do not, or if a rank has no record.
    """
    from steadytrain.compare.collectives import compare_records
    from steadytrain.storage.flight_records import read_records

    compared = compare_records(read_records(paths))
    if as_json:
        say_document(compared.to_json())
        return 0 if compared.agrees else 1
    several = len(compared.groups) != 1
    say(
        f"{len(compared.ranks)} rank{'s' if len(compared.ranks) != 1 else ''}, {len(compared.groups)} "
        f"group{'s' if several else ''}, {compared.calls:,} calls"
    )
    for place, one in enumerate(compared.disagreements[:SHOWN_MAX]):
        say_lines(f"{'' if place == 0 else 'then: '}{one.sentence}")
    if len(compared.disagreements) > SHOWN_MAX:
        say(f"and {len(compared.disagreements) - SHOWN_MAX} more")
    if compared.absent:
        say_lines(f"no record of rank {', '.join(map(str, compared.absent))}: it died, or its file is not here")
    if compared.agrees:
        say("the ranks agree: each call was made by all ranks and has ended")
    return 0 if compared.agrees else 1
