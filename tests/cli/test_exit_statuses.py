"""docs/exit-statuses.md says of each command what its help says."""

from __future__ import annotations

import re
from pathlib import Path

import click
from test_manners import every_command

DOCS = Path(__file__).parents[2] / "docs"
OF_THE_ANSWER = (1, 125)
"""Statuses that mean something else for each command."""


def told_by_help(command: click.Command) -> set[int]:
    """The statuses in the sentences of the help that are about the end of the command."""
    options = [one.help or "" for one in command.params if isinstance(one, click.Option)]
    text = " ".join(" ".join([command.help or "", *options]).split())
    about = [sentence for sentence in re.findall(r"[^.]*\.", text) if re.search(r"\b[Ee]xits? with\b", sentence)]
    return {int(one) for sentence in about for one in re.findall(r"(?<![\w.-])(?:0|1|2|70|71|125)(?![\w.])", sentence)}


def rows() -> dict[str, set[int]]:
    """The statuses beside 0 that the page has for each command."""
    lines = (
        (DOCS / "exit-statuses.md").read_text(encoding="utf-8").partition("| command | 0 | 1 | 125 |")[2].splitlines()
    )
    found = {}
    for line in lines:
        if match := re.match(r"\| `([a-z-]+)` \|", line):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            assert len(cells) == 4, line
            found[match[1]] = {status for status, cell in zip(OF_THE_ANSWER, cells[2:], strict=True) if cell}
    return found


def test_the_page_has_the_statuses_of_every_command() -> None:
    told = {name: told_by_help(command) & set(OF_THE_ANSWER) for name, command in every_command()}
    assert rows() == {name: statuses for name, statuses in told.items() if statuses}


def test_the_page_and_the_promise_name_every_status() -> None:
    page = (DOCS / "exit-statuses.md").read_text(encoding="utf-8")
    promised = (DOCS / "stability.md").read_text(encoding="utf-8").partition("| exit statuses |")[2].splitlines()[0]
    every = {status for _, command in every_command() for status in told_by_help(command)} | {70, 71, 130}
    for status in every:
        assert f"| {status} |" in page
        assert re.search(rf"\b{status}\b", promised)
