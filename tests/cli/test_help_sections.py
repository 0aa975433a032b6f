"""``steadytrain --help`` and docs/commands.md show every command once, in the same sections and order."""

from __future__ import annotations

import re
from pathlib import Path

import click
from click.testing import CliRunner

from steadytrain.cli.main import SECTIONS, commands

PAGE = Path(__file__).parents[2] / "docs" / "commands.md"


def test_every_command_is_in_one_section() -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert named == commands.list_commands(click.Context(commands))
    assert len(named) == len(set(named))


def test_the_help_has_the_sections_in_the_order_of_use() -> None:
    shown = CliRunner().invoke(commands, ["--help"]).stdout
    places = [shown.index(f"\n{section}:\n") for section in SECTIONS]
    assert places == sorted(places)
    assert list(SECTIONS) == ["Watch", "After a fault", "Before a run", "CI and pipelines", "Administration"]
    listed = re.findall(r"^  ([a-z][a-z-]+) +[A-Z]", shown.partition("\nWatch:\n")[2], re.MULTILINE)
    assert listed == [name for names in SECTIONS.values() for name in names]


def test_the_page_has_a_row_for_each_command_in_its_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for section, names in SECTIONS.items():
        part = text.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        rows = [line.partition(" | ")[0] for line in part.splitlines() if line.startswith("| `steadytrain ")]
        rows = [row for row in rows if "--resume-from" not in row]  # `run`, once more where it is of use
        shown = list(dict.fromkeys(name for row in rows for name in re.findall(r"`steadytrain ([a-z-]+)", row)))
        assert sorted(shown) == sorted(names), section
