"""The code blocks of README and docs, with what the comments in front of them say.

A comment directly before a block holds one or more of these, divided by semicolons:

- ``not run: REASON``: the block is only shown.
- ``in: STAGE``: the block and those after it run in a new folder, prepared by that stage (``doc_stages``).
- ``needs: MODULE``: with ``in``: where this module is not installed, the blocks of the folder are left out.
- ``file: NAME``: the block is written to this file of the folder.
- ``waits: NAME``: the block runs once this file of the folder has content: a process in the background writes it.
- ``status: N``: the exit status of the last command (0 by default).
- ``output: REASON``: what is shown is real, but differs at each run, so it is not compared; the reason says how.
- ``as: KIND``: how to check or run a block of TOML, YAML or Python (``doc_checks``, ``doc_running``).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).parents[2]
DIRECTIVES = ("not run", "in", "needs", "file", "waits", "status", "output", "as")
COMMENT = re.compile(r"<!--(.*?)-->", re.DOTALL)
PROMPT = "$ "
PICTURES = ("mermaid",)
"""Languages that are drawn, not executed."""


@dataclass(frozen=True)
class Command:
    """One command of a console block and the output that is shown under it."""

    text: str
    output: str


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    directives: Mapping[str, str] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def runs(self) -> bool:
        return "not run" not in self.directives and self.language not in PICTURES

    def commands(self) -> tuple[Command, ...]:
        """The commands behind ``$``; a line that ends with a backslash goes on."""
        found: list[tuple[list[str], list[str]]] = []
        goes_on = False
        for line in self.text.splitlines():
            if goes_on:
                found[-1][0].append(line)
            elif line.startswith(PROMPT):
                found.append(([line.removeprefix(PROMPT)], []))
            elif found:
                found[-1][1].append(line)
            goes_on = (goes_on or line.startswith(PROMPT)) and line.endswith("\\")
        return tuple(Command("\n".join(command), "\n".join(output)) for command, output in found)


def pages() -> tuple[Path, ...]:
    """The pages whose blocks are checked: everything for readers of the project."""
    top = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return (*top, *sorted((ROOT / "docs").rglob("*.md")))


def pages_from(found: Sequence[Path], name: str) -> tuple[Path, ...]:
    """``found`` from the page of that name on (``gate`` or ``guides/ci.md``); all if it is empty."""
    names = [str(page.relative_to(ROOT).with_suffix("")).removeprefix("docs/") for page in found]
    if not name:
        return tuple(found)
    wanted = name.removeprefix("docs/").removesuffix(".md")
    if wanted not in names:
        raise ValueError(f"FROM={name}: no page with blocks that run; one of {', '.join(names)}")
    return tuple(found[names.index(wanted) :])


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    said: dict[str, str] = {}
    for token in MarkdownIt().parse(text):
        if token.type == "html_block":
            said |= directives(token.content, page)
        elif token.type == "fence":
            assert token.map is not None
            yield Block(page, token.map[0] + 1, token.info.strip(), textwrap.dedent(token.content), said)
            said = {}
        elif token.type == "inline" and said:
            raise ValueError(f"{page.name}: the comment {said} does not stand directly before a code block")


def directives(html: str, page: Path) -> dict[str, str]:
    """What the comments of ``html`` say about the next block; other comments are left alone."""
    found: dict[str, str] = {}
    for comment in COMMENT.findall(html):
        parts = [part.strip().partition(":") for part in comment.split(";")]
        if parts[0][0] not in DIRECTIVES:
            continue
        for name, colon, value in parts:
            if name not in DIRECTIVES or not colon or not value.strip():
                known = ", ".join(DIRECTIVES)
                raise ValueError(f"{page.name}: <!--{comment}-->: {name!r} is none of {known} with a value")
            found[name] = " ".join(value.split())
    return found
