"""Sources of the standard library as a text of 96 characters."""

import sysconfig
from pathlib import Path

import torch

FILES = ("argparse", "ast", "dataclasses", "difflib", "inspect", "pathlib", "textwrap", "typing", "unittest/case")
CHARACTERS = 96
SPACE, NEWLINE = 0, 95


def encode(text):
    """Printable ASCII from 0 on, a line's end last, everything else a space."""
    return [ord(c) - 32 if " " <= c <= "~" else NEWLINE if c == "\n" else SPACE for c in text]


def library_text():
    """The characters of some modules, one after the other."""
    root = Path(sysconfig.get_path("stdlib"))
    ids = []
    for name in FILES:
        path = root / f"{name}.py"
        if path.is_file():
            ids += encode(path.read_text(encoding="utf-8", errors="replace"))
    return torch.tensor(ids)


def pages(text, rows, length):
    """Random stretches of the text: what is read, and the character after each."""
    starts = torch.randint(len(text) - length - 1, (rows, 1))
    found = text[starts + torch.arange(length + 1)]
    return found[:, :-1], found[:, 1:]
