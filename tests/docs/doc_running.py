"""Runs the blocks of a page, in their order, and compares what is shown with what came out.

Numbers, times, paths and the width of the terminal differ from machine to machine, so they count as equal. `...` in an
output stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from ci_steps import FROM_HERE, FROM_INDEX
from doc_blocks import Block
from doc_checks import steps_of
from doc_stages import prepare

from waiting import until

COMMAND_S_MAX = 1800
COLUMNS = "120"
BINARIES = os.environ.get("DOC_BINARIES") or Path(sys.executable).parent
"""Where the commands come from: of this environment, or of that which ``release/newcomer.py`` made."""

NUMBER = re.compile(r"-?\b\d[\d.,]*(?:e[+-]?\d+)?\b|\b(?:nan|inf)\b", re.IGNORECASE)
STAMP = re.compile(r"\b\d{8}-\d{6}\b|\b\d{4}-\d{2}-\d{2}\b")
CURVE = re.compile(r"[▁▂▃▄▅▆▇█─━┌┐└┘│ ]{4,}|[-─]{3,}")
SHOWN_END = 6000


class BlockError(AssertionError):
    """A block did not do what its page shows."""


def run_page(blocks: list[Block], folder: Path) -> Iterator[str]:
    """Run the blocks that run; yields the place of each that did."""
    here: Path | None = None
    left_out = False
    for block in blocks:
        stage = block.directives.get("in")
        if stage is not None:
            needed = block.directives.get("needs")
            left_out = needed is not None and find_spec(needed) is None
        if left_out:
            continue
        if stage is not None:
            here = folder / f"line-{block.line}"
            here.mkdir()
            for earlier in blocks:
                if earlier.line < block.line and "file" in earlier.directives:
                    _write(earlier, here)
            prepare(here, stage, partial(_in_stage, block, here))
        if not block.runs or block.directives.get("as") in ("gate-policy", "guard-policy", "entry-points"):
            if "file" in block.directives and here is not None:
                _write(block, here)
            continue
        if here is None:
            raise BlockError(f"{block.place}: no block up to here says `in: STAGE`, so it has no folder to run in")
        if "waits" in block.directives:
            until(partial(_has_content, here / block.directives["waits"]))
        _run(block, here)
        yield block.place


def _in_stage(block: Block, here: Path, command: str, status: int) -> None:
    _expect(block, command, status, here)


def _write(block: Block, here: Path) -> None:
    path = here / block.directives["file"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(block.text, encoding="utf-8")


def _has_content(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _run(block: Block, here: Path) -> None:
    if "file" in block.directives:
        _write(block, here)
    if block.language == "console":
        _run_commands(block, here)
    elif block.language == "bash":
        _expect(block, block.text, _status(block, 0, 1), here)
    elif block.language == "yaml":
        for step in steps_of(block):
            _expect(block, FROM_INDEX.sub(FROM_HERE, step), _status(block, 0, 1), here)
    elif block.language == "python" and block.directives.get("as") == "pytest":
        (here / "test_block.py").write_text(_prelude(here) + block.text, encoding="utf-8")
        _expect(block, "pytest -q -p no:cacheprovider test_block.py", 0, here)
    elif block.language == "python" and "file" not in block.directives:
        (here / "block.py").write_text(_prelude(here) + block.text, encoding="utf-8")
        _expect(block, "python block.py", _status(block, 0, 1), here)


def _prelude(here: Path) -> str:
    return "from prelude import *\n" if (here / "prelude.py").exists() else ""


def _run_commands(block: Block, here: Path) -> None:
    commands = block.commands()
    for number, command in enumerate(commands):
        actual = _expect(block, command.text, _status(block, number, len(commands)), here)
        missing = first_missing(command.output, actual.replace(f"{here}{os.sep}", ""))
        if missing and "output" not in block.directives:
            raise BlockError(f"{block.place}: $ {command.text}\nnever printed: {missing}\n\nit printed:\n{actual}")


def _status(block: Block, number: int, count: int) -> int:
    """The status that the command ``number`` of ``count`` must end with: the directive names those of the last ones."""
    said = [int(word) for word in block.directives.get("status", "0").split()]
    return [*[0] * (count - len(said)), *said][number]


def _expect(block: Block, command: str, status: int, here: Path) -> str:
    """What ``command`` prints, on both streams; it must end with ``status``."""
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=here,
        env=environment(here),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_S_MAX,
    )
    if done.returncode != status:
        end = done.stdout[-SHOWN_END:]
        raise BlockError(f"{block.place}: $ {command}\nended with {done.returncode}, expected {status}:\n{end}")
    return done.stdout


def environment(here: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEADYTRAIN", "PYTEST"))}
    return kept | {
        "PATH": f"{BINARIES}{os.pathsep}{os.environ['PATH']}",
        "XDG_STATE_HOME": str(here.parent / "state"),
        "STEADYTRAIN_RAISE_OWN_ERRORS": "1",
        "COLUMNS": COLUMNS,
        "NO_COLOR": "1",
        "PYTHONUNBUFFERED": "1",  # lines come in the order in which a terminal shows them
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def first_missing(shown: str, actual: str) -> str:
    """The first piece of ``shown`` that ``actual`` has not, in this order; empty if it has all."""
    rest = comparable(actual)
    for piece in re.split(r"\.\.\.", shown):
        wanted = comparable(piece)
        place = rest.find(wanted)
        if place < 0:
            return _longest_start(wanted, rest)
        rest = rest[place + len(wanted) :]
    return ""


def comparable(text: str) -> str:
    for pattern, sign in ((STAMP, "#"), (CURVE, " "), (NUMBER, "#")):
        text = pattern.sub(sign, text)
    return " ".join(text.split())


def _longest_start(wanted: str, text: str) -> str:
    """``wanted``, with a mark at the place up to which ``text`` has it."""
    length = next((size for size in range(len(wanted), 0, -1) if wanted[:size] in text), 0)
    return f"{wanted[:length]} >>>HERE<<< {wanted[length:]}"
