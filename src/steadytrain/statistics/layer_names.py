"""What names of parameters and modules show: which belong to one block, its depth, which are embeddings.

A model is a stack where some part of the names counts up: ``h.0.``, ``h.1.``, or ``fc1.``, ``fc2.``. The order of the
parameters is that of the optimizer's groups and says nothing; the number does. Names that do not count have no depth
here, and nothing is said about them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from steadytrain.core.model import GRADIENT_ABSENT, FloatArray, IntArray, Window
from steadytrain.statistics.table_episodes import apart, applied_cells

BLOCKS_MIN = 3
"""Fewer blocks cannot show a change along the depth."""

TOKEN_EMBEDDINGS = re.compile(
    r"(?:^|\.)(?:wte|embed_tokens|embed_in|embedding|embeddings|embed|emb|shared|"
    r"(?:word|words|tok|token|tokens)_?(?:embed|emb|embedding|embeddings)|words|tokens|tokens_embed)(?:\.weight)?$"
)
"""As GPT-2, LLaMA, GPT-NeoX, T5, BERT, nanoGPT and their relatives call them."""

_EMBEDDING = re.compile(r"(?:^|[._])(?:w[tp]e|emb(?:ed)?\w*)(?:\.|$)", re.IGNORECASE)
_NORM = re.compile(r"(?:^|[._])(?:\w*norm\w*|ln|bn|gn)(?:_?\w{0,2})?(?:\.|$)", re.IGNORECASE)
_EXPERT = re.compile(r"^(.*?experts?)\.(\d+)(?:\.|$)")
_COUNTED = re.compile(r"^(.*?)(\d+)$")


def is_token_embedding(name: str) -> bool:
    """Whether a parameter is the table of a token embedding."""
    return TOKEN_EMBEDDINGS.search(name) is not None


def is_embedding(name: str) -> bool:
    """Whether a parameter belongs to an embedding of any kind, of positions too."""
    return is_token_embedding(name) or _EMBEDDING.search(name) is not None


def is_norm(name: str) -> bool:
    """Whether a parameter is gain or bias of a normalisation, judged by its name."""
    return _NORM.search(name) is not None


@lru_cache(maxsize=8)
def embeddings_among(names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Which of these parameters belong to an embedding."""
    return np.array([is_embedding(name) for name in names], np.bool_)


@lru_cache(maxsize=8)
def experts_among(names: tuple[str, ...]) -> NDArray[np.bool_]:
    """Which of these parameters or modules are inside an expert, which only sees its own tokens."""
    return np.array(["expert" in name.lower() for name in names], np.bool_)


@dataclass(frozen=True)
class Stack:
    """Blocks that are numbered under one name, in the order of their numbers: positions of each one's parameters."""

    name: str
    numbers: tuple[int, ...]
    members: tuple[IntArray, ...]

    def block(self, index: int | np.intp) -> str:
        return f"{self.name}{self.numbers[index]}"

    def spoken(self, index: int | np.intp) -> str:
        """The name of a block within a sentence, where a bare number would be taken for one."""
        return self.block(index) if self.name else f"block {self.numbers[index]}"


@lru_cache(maxsize=8)
def stacks(names: tuple[str, ...]) -> tuple[Stack, ...]:
    """The stacks of at least ``BLOCKS_MIN`` blocks among these parameters, without embeddings and norms."""
    counted = {
        position: found
        for position, name in enumerate(names)
        if not is_embedding(name) and not is_norm(name) and (found := _counted(name))
    }
    numbers: dict[str, set[int]] = {}
    for found in counted.values():
        for family, number in found:
            numbers.setdefault(family, set()).add(number)
    tall = {family for family, held in numbers.items() if len(held) >= BLOCKS_MIN and not is_norm(family)}
    members: dict[str, dict[int, list[int]]] = {}
    for position, found in counted.items():
        first = next(((family, number) for family, number in found if family in tall), None)
        if first is not None:
            members.setdefault(first[0], {}).setdefault(first[1], []).append(position)
    for blocks in members.values():
        # A bias may have no gradient by design, as before a norm. An optimizer may hold it without its weight.
        for number in [number for number, held in blocks.items() if all(_is_bias(names[at]) for at in held)]:
            del blocks[number]
    built = [
        Stack(family, tuple(sorted(blocks)), tuple(np.array(blocks[number]) for number in sorted(blocks)))
        for family, blocks in members.items()
        if len(blocks) >= BLOCKS_MIN and "expert" not in family
    ]
    return tuple(built)


@lru_cache(maxsize=8)
def experts(names: tuple[str, ...]) -> tuple[Stack, ...]:
    """The experts of each mixture among these parameters: those named ``...experts.N.``."""
    mixtures: dict[str, dict[int, list[int]]] = {}
    for position, name in enumerate(names):
        found = _EXPERT.match(name)
        if found:
            mixtures.setdefault(found[1] + ".", {}).setdefault(int(found[2]), []).append(position)
    return tuple(
        Stack(name, tuple(sorted(blocks)), tuple(np.array(blocks[number]) for number in sorted(blocks)))
        for name, blocks in mixtures.items()
    )


@dataclass(frozen=True)
class Profile:
    """Gradient norms along one stack: ``norms`` has shape ``(readings, blocks)``, NaN where a block had no gradient."""

    stack: Stack
    steps: IntArray
    norms: FloatArray

    def first_to_last(self, *, before: int = 0) -> FloatArray:
        """Norm of the first block over that of the last but ``before``, NaN where one is unknown or the last is 0."""
        first, last = self.norms[:, 0], self.norms[:, -1 - before]
        ratio: FloatArray = np.divide(first, last, out=np.full(len(first), np.nan), where=last > 0)
        return ratio


def profiles(window: Window, *, apart_steps: int) -> tuple[Profile, ...]:
    """The gradient along each stack at steps ``apart_steps`` apart: every step's norms where there are, or readings.

    Blocks of one stack are alike, so that their norms may be compared instead of their root mean squares, which would
    want the number of elements. Blocks that never have a gradient (frozen ones) are left out.
    """
    names, steps, norms = _gradient_norms(window, apart_steps)
    found = []
    for stack in stacks(names):
        blocks = _together(norms, stack.members)
        seen = np.flatnonzero(~np.isnan(blocks).all(axis=0))
        if len(seen) >= BLOCKS_MIN:
            kept = Stack(stack.name, tuple(stack.numbers[at] for at in seen), tuple(stack.members[at] for at in seen))
            found.append(Profile(kept, steps, blocks[:, seen]))
    return tuple(found)


def _gradient_norms(window: Window, apart_steps: int) -> tuple[tuple[str, ...], IntArray, FloatArray]:
    """Names, steps and ``(readings, tensors)`` of gradient norms, NaN where there is none or it is not finite."""
    if window.tensor_names and len(window.gradient_norms) == len(window):
        kept = apart(window.steps, apart_steps)
        kept = kept[~(window.skipped | window.refused)[kept]]
        norms = window.gradient_norms[kept].astype(np.float64)
        norms[(norms == GRADIENT_ABSENT) | ~np.isfinite(norms)] = np.nan
        return window.tensor_names, window.steps[kept], norms
    cells = applied_cells(window, "tensors", "gradient_norm", apart_steps=apart_steps)
    if cells is None:
        return (), np.zeros(0, np.int64), np.zeros((0, 0))
    return cells.rows, cells.steps, np.where(np.isfinite(cells.values), cells.values, np.nan)


def _together(norms: FloatArray, members: Sequence[IntArray]) -> FloatArray:
    """The norm of each block's tensors together, ``(readings, blocks)``; NaN where none of them has one."""
    columns = np.concatenate(members)
    starts = np.cumsum([0, *(len(block) for block in members[:-1])])
    held = norms[:, columns]
    known = ~np.isnan(held)
    squares = np.add.reduceat(np.square(np.where(known, held, 0.0)), starts, axis=1)
    joined: FloatArray = np.sqrt(squares)
    joined[~np.logical_or.reduceat(known, starts, axis=1)] = np.nan
    return joined


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2].rstrip("_0123456789").endswith("bias")


def _counted(name: str) -> Sequence[tuple[str, int]]:
    """The parts of a name that end in a number, as (all before the number, the number), the outermost first."""
    found, before = [], ""
    for part in name.split("."):
        match = _COUNTED.match(part)
        if match:
            found.append((before + match[1], int(match[2])))
        before += part + "."
    return found
