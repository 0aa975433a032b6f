"""Arming is all or nothing: where one name of torch is missing, nothing of ours stays in torch and training goes on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

import steadytrain
from steadytrain import attach
from steadytrain.attach import Options, launched_script
from steadytrain.attach.watched_run import WatchedRun, begin_run
from steadytrain.capture.hooks import patches
from steadytrain.capture.hooks.fail_open import Guard
from steadytrain.capture.hooks.patches import Patches
from steadytrain.core.torch_names import NAMES, MissingNameError, TorchName
from steadytrain.core.torch_private import SKIP_RULES
from steadytrain.testing.leftovers import leftovers

NEEDED = [name for name in NAMES if name.needed]
PUTTERS = sorted(name for name in vars(Patches) if name.startswith("_put_") and name != "_put_all")


@pytest.fixture(autouse=True)
def _nothing_of_ours_is_left() -> Iterator[None]:
    before = places()
    yield
    assert places() == before
    assert not leftovers()
    assert attach.attached() is None


def places() -> list[Any]:
    """What lies in each place that the patches go to."""
    loader = torch.utils.data.dataloader._BaseDataLoaderIter
    return [
        torch.autograd._engine_run_backward,  # type: ignore[attr-defined]
        *(loader.__next__, loader._next_index, torch.compile),
        *(torch.amp.GradScaler.step, torch.amp.GradScaler.scale),
        *(torch.nn.utils.clip_grad_norm_, torch.nn.utils.clip_grad_value_),
        *(nn.Module.zero_grad, nn.Module.load_state_dict),
        *(vars(torch.optim.Optimizer)[name] for name in ("__init__", "zero_grad", "load_state_dict", "state_dict")),
        dict(optimizers._global_optimizer_pre_hooks),
        dict(optimizers._global_optimizer_post_hooks),
        [type(finder).__name__ for finder in sys.meta_path],
    ]


def train(watch: Any) -> list[float]:
    """Five steps inside ``watch``."""
    torch.manual_seed(0)
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    with watch:
        for _ in range(5):
            loss = model(torch.randn(4, 3)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses


def without(name: TorchName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(name.owner(), name.attribute)


def begun(folder: Path) -> WatchedRun:
    return begin_run("train.py", "train", ["train.py"], Options(runs_dir=folder, name="run"), is_module=False)


@pytest.mark.parametrize("name", NEEDED, ids=lambda name: name.full)
def test_watch_goes_on_unwatched(
    name: TorchName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = train(steadytrain.watch(runs_dir=tmp_path, name="watched"))
    capsys.readouterr()
    model = nn.Linear(3, 1)
    with monkeypatch.context() as planted:
        without(name, planted)
        watch = steadytrain.watch(model, runs_dir=tmp_path, name="unwatched")
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("steadytrain: warning: could not attach (MissingNameError: torch ")
    assert said[0].endswith(f"has no {name.full}: {name.lost}); training goes on unwatched")
    assert not leftovers()
    assert train(watch) == expected
    assert not (tmp_path / "unwatched").exists()


def test_a_watch_that_could_not_begin_does_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as planted:
        without(NEEDED[0], planted)
        watch = steadytrain.watch(runs_dir=tmp_path, name="run")
    assert (watch.run_dir, watch.memory_bytes, watch.steps) == (tmp_path / "run", 0, {})
    watch.set_fact("name", 1)
    watch.evaluated({"loss": 1.0})
    with watch.update(learning_rate=0.1):
        pass
    watch.close()


@pytest.mark.parametrize("name", NEEDED, ids=lambda name: name.full)
def test_a_launched_script_goes_on_unwatched(
    name: TorchName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as planted:
        without(name, planted)
        launched_script._arm(begun(tmp_path))
    assert f"has no {name.full}: {name.lost}); training goes on unwatched" in capsys.readouterr().err


@pytest.mark.parametrize("name", PUTTERS)
def test_patches_that_are_in_come_out_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(Patches, name, broken)
        with pytest.raises(RuntimeError, match="planted"):
            Patches(Events(), Guard(print))
    assert not leftovers()


def test_the_last_patch_takes_the_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(patches, "state_wrappers", broken)
        with pytest.raises(RuntimeError, match="planted"):
            Patches(Events(), Guard(print))


def test_an_error_of_ours_does_not_reach_a_watch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(patches, "state_wrappers", broken)
        planted.setattr(Guard, "reraise", False)
        watch = steadytrain.watch(runs_dir=tmp_path, name="run")
    assert "could not attach (RuntimeError: planted); training goes on unwatched" in capsys.readouterr().err
    train(watch)


def test_a_guest_that_fails_takes_the_watch_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def guest(watcher: Any) -> None:
        raise RuntimeError("planted")

    launched_script._arm(begun(tmp_path), guest)
    assert "could not attach (RuntimeError: planted); training goes on unwatched" in capsys.readouterr().err


def test_a_compiler_without_our_rules_is_imported_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    patches.keep_compiler_out.cache_clear()
    with monkeypatch.context() as planted:
        without(SKIP_RULES, planted)
        planted.setattr(SKIP_RULES, "_found", None)
        patches.keep_compiler_out()
    patches.keep_compiler_out.cache_clear()
    assert issubclass(MissingNameError, AttributeError)


class Events:
    """Takes every call; nothing is trained here."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: None
