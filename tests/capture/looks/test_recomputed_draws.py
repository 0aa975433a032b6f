"""A backward that draws is reported if the script keeps no random state, and in no other script."""

from __future__ import annotations

import linecache
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from steadytrain.capture.looks import recomputed_draws
from steadytrain.capture.looks.recomputed_draws import BACKWARDS, OPTION, RecomputedDraws


def script(folder: Path, monkeypatch: pytest.MonkeyPatch, option: str) -> None:
    """The running script is one with this line."""
    file = folder / "train.py"
    file.write_text(f"import torch\n{option}\n", encoding="utf-8")
    linecache.checkcache(str(file))
    monkeypatch.setattr(recomputed_draws, "source_files", lambda: {str(file): {}})


def rows_of(module: nn.Module, *, preserve: bool, backwards: int = 3) -> list[tuple[str, float]]:
    look = RecomputedDraws()
    for _ in range(backwards):
        value = torch.ones(4, 4, requires_grad=True)
        loss = checkpoint(module, value, use_reentrant=False, preserve_rng_state=preserve).sum()
        look.begins()
        loss.backward()
        look.ended()
    return list(look.rows())


DRAWS = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))


@pytest.mark.parametrize(
    ("module", "preserve", "found"),
    [
        (DRAWS, False, [("unlike-recomputation:train.py:2", 3.0)]),
        (DRAWS, True, []),
        (nn.Linear(4, 4), False, []),
        (nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0)), False, []),
    ],
    ids=["it draws again", "the state is restored", "it draws nothing", "a share of 0 is dropped"],
)
def test_only_a_backward_that_draws_is_told(
    module: nn.Module, preserve: bool, found: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, monkeypatch, "call = partial(checkpoint, preserve_rng_state=False)")
    assert rows_of(module, preserve=preserve) == found


@pytest.mark.parametrize(
    "line", ["checkpoint(part, x)", "checkpoint(part, x, preserve_rng_state=True)", "# preserve_rng_state=False"]
)
def test_a_script_without_the_option_is_not_looked_at(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, monkeypatch, line)
    assert rows_of(DRAWS, preserve=False) == []


@pytest.mark.parametrize(
    "text", ["preserve_rng_state=False", "'preserve_rng_state': fast", "preserve_rng_state = not args.slow"]
)
def test_every_spelling_of_the_option_is_read(text: str) -> None:
    assert OPTION.search(text)


def test_it_is_told_once_and_only_the_first_backwards_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(tmp_path, monkeypatch, "x = dict(preserve_rng_state=False)")
    look = RecomputedDraws()
    for _ in range(BACKWARDS):
        look.begins()
        look.ended()
    look.begins()
    torch.rand(1)
    look.ended()
    assert list(look.rows()) == []
