"""What commands print on terminals of several widths, with and without colours, and into a pipe."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

import builders
import warm
from steadytrain.cli._output import fit
from steadytrain.core.plugin_pages import filled

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
COLOURS = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;\d+)*m")
COMMANDS = (
    ("show",),
    ("runs",),
    ("explain", "loss-spike"),
    ("explain",),
    ("checkpoints",),
    ("ledger",),
    ("checklist",),
    ("policy", "show"),
    ("show", "--help"),
)
WAIT_S_MAX = 60.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("terminals")
    builders.bad_run(folder / "steadytrain-runs" / "a-run-with-a-name-that-is-rather-long-20261126-101500")
    return folder


def on_terminal(folder: Path, words: tuple[str, ...], width: int, **more: str) -> str:
    """What the command prints on a terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "NO_COLOR")}
    environment |= {"TERM": "xterm-256color", **more}
    parts = []
    with subprocess.Popen(
        [warm.python(), "-m", "steadytrain", *words],
        cwd=folder,
        env=environment,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    ) as command:
        os.close(theirs)
        while True:
            try:
                part = os.read(ours, 65_536)
            except OSError:  # so the end of a terminal reads on Linux
                break
            if not part:
                break
            parts.append(part)
        command.wait(WAIT_S_MAX)
    os.close(ours)
    return b"".join(parts).decode().replace("\r\n", "\n")


def stays_whole(line: str) -> bool:
    """A command that is to be pasted, and a path."""
    return re.match(r"\s*next:? ", line) is not None or " " not in line.strip()


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(words: tuple[str, ...], width: int, folder: Path) -> None:
    lines = ESCAPES.sub("", on_terminal(folder, words, width)).split("\n")
    assert any(lines)
    assert [line for line in lines if len(line) > width and not stays_whole(line)] == []


def test_no_color_is_heeded_and_else_there_are_colours(folder: Path) -> None:
    assert COLOURS.search(on_terminal(folder, ("show",), 100))
    plain = on_terminal(folder, ("show",), 100, NO_COLOR="1")
    assert COLOURS.search(plain) is None
    assert "critical" in plain


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_pipe_gets_plain_text(words: tuple[str, ...], folder: Path) -> None:
    command = [warm.python(), "-m", "steadytrain", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=WAIT_S_MAX, check=False)
    assert done.stdout
    assert "\x1b" not in done.stdout + done.stderr


def test_a_narrow_terminal_gets_the_runs_whole(folder: Path) -> None:
    text = ESCAPES.sub("", on_terminal(folder, ("runs",), 60))
    assert "a-run-with-a-name-that-is-rather-long-20261126-101500\n" in text
    assert "…" not in text
    assert re.search(r"\d steps  .*critical", text)


def test_a_line_is_broken_below_its_second_column() -> None:
    assert fit("name    " + "word " * 8, 30).split("\n") == [
        "name    word word word word",
        "        word word word word",
    ]
    assert fit("  step 5  " + "word " * 8, 30).split("\n")[1] == "          word word word word"
    assert fit("plain " + "word " * 8, 30).split("\n")[1] == "  word word word"
    assert fit("short", 30) == "short"
    assert fit("      next: steadytrain trial a/b/c/d/e/f/g", 30) == "      next: steadytrain trial a/b/c/d/e/f/g"


def test_paragraphs_and_lists_are_filled_again() -> None:
    text = "one two three four\nfive six\n\n- an item that goes\n  on here\n- another"
    assert filled(text, 80) == text
    assert filled(text, 12).split("\n") == [
        "one two",
        "three four",
        "five six",
        "",
        "- an item",
        "  that goes",
        "  on here",
        "- another",
    ]
