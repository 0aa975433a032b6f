"""Copies, pickles, saved files and exports of a watched module are what they are without us."""

from __future__ import annotations

import copy
import functools
import inspect
import io
import pickle
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from parameters import long
from steadytrain.capture.hooks.copies import REDUCE
from watching import watching


class OwnReduction(nn.Linear):
    """Pickles itself in its own way, by the usual three entries."""

    def __reduce__(self) -> Any:
        return OwnReduction, (2, 1), self.__dict__


class OwnState(nn.Linear):
    def __getstate__(self) -> Any:
        return {**self.__dict__, "kept": 1}


class Mixed:
    """Behind ``nn.Module`` in the order of inheritance: still asked."""

    def __reduce_ex__(self, protocol: Any) -> Any:
        return Both, (2, 1)


class Both(nn.Linear, Mixed):
    pass


class WithHooks(nn.Linear):
    """Brings a hook of its own, with keyword arguments."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.register_forward_pre_hook(scaled, with_kwargs=True)


def scaled(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return tuple(one * 2 for one in args), kwargs


def saved(thing: Any, protocol: int = 2) -> bytes:
    """What ``torch.save`` writes, without the numbers of the tensors."""
    file = io.BytesIO()
    torch.save(thing, file, pickle_protocol=protocol)
    with zipfile.ZipFile(file) as archive:
        return archive.read(next(name for name in archive.namelist() if name.endswith("data.pkl")))


WAYS: dict[str, Callable[[nn.Module], bytes]] = {
    "torch.save": saved,
    "a newer protocol": lambda model: saved(model, 5),
    "deepcopy": lambda model: saved(copy.deepcopy(model)),
    "copy": lambda model: saved(copy.copy(model)),
}


def trained(kind: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    model = kind(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
    return model


KINDS = (nn.Linear, OwnReduction, OwnState, Both)
TELLING = set(zip(KINDS, WAYS, strict=True)) | {(Both, "torch.save"), (nn.Linear, "deepcopy")}
"""Each kind and each way once, and what people do most."""


@pytest.mark.parametrize(
    ("kind", "way"),
    [(kind, way) if (kind, way) in TELLING else long(kind, way) for kind in KINDS for way in WAYS],
)
def test_a_copy_has_the_bytes_that_it_has_without_us(kind: type[nn.Module], way: str, tmp_path: Path) -> None:
    expected = WAYS[way](trained(kind))
    with watching(tmp_path / "run", "stop"):
        model = trained(kind)
        assert model._forward_hooks or model._forward_pre_hooks  # there is something to leave out
        assert WAYS[way](model) == expected


def test_hooks_of_the_script_stay(tmp_path: Path) -> None:
    with watching(tmp_path / "run", "stop"):
        model = trained(WithHooks)
        for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            assert list(twin._forward_pre_hooks.values()) == [scaled]
            assert len(twin._forward_pre_hooks_with_kwargs) == 1
            assert not twin._forward_hooks
            assert not twin._forward_hooks_always_called
            assert torch.equal(twin(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_torch_is_as_it_was_afterwards(tmp_path: Path) -> None:
    assert REDUCE not in vars(nn.Module)
    with watching(tmp_path / "run", "stop"):
        assert REDUCE in vars(nn.Module)
    assert REDUCE not in vars(nn.Module)


def test_somebody_elses_reduction_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, REDUCE, lambda self, protocol: (nn.Identity, ()), raising=False)
    with watching(tmp_path / "run", "stop"):
        assert type(copy.deepcopy(trained(nn.Linear))) is nn.Identity


def graphs(model: nn.Module, example: torch.Tensor) -> list[str]:
    """As text; torch numbers the modules that it has traced before."""
    traced = str(torch.jit.trace(model.eval(), example).inlined_graph)
    return [re.sub(r"___torch_mangle_\d+\.", "", traced), str(torch.export.export(model, (example,)))]


@pytest.mark.xfail(torch.__version__.startswith("2.6."), reason="docs/versions.md: lost on torch 2.6")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_model_is_traced_and_exported_as_without_us(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 1))
    example = torch.ones(4, 2)
    plain = graphs(model, example)
    with watching(tmp_path / "run", "stop") as watcher:
        optimizer = torch.optim.SGD(model.train().parameters(), lr=0.0)
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 2)).sum().backward()
            optimizer.step()
        assert graphs(model, example) == plain
    assert watcher.incidents == []


@pytest.mark.parametrize("name", ["clip_grad_norm_", "clip_grad_value_"])
def test_a_clip_function_pickles_by_its_name(tmp_path: Path, name: str) -> None:
    """A recipe with ``functools.partial(clip_grad_norm_, max_norm=1.0)`` in a checkpoint."""
    bare = pickle.dumps(functools.partial(getattr(nn.utils, name), foreach=False))
    with watching(tmp_path / "run", "stop"):
        clip = getattr(nn.utils, name)
        assert pickle.dumps(functools.partial(clip, foreach=False)) == bare
        assert pickle.loads(pickle.dumps(clip)) is clip
        assert copy.deepcopy(clip) is clip
        assert inspect.isfunction(clip)
        assert clip.__module__ == "torch.nn.utils.clip_grad"
        assert "steadytrain" not in str(clip)


def test_a_saved_partial_is_what_it_is_without_us(tmp_path: Path) -> None:
    """To ask for its ``__dict__`` makes one, which its pickle then has."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recipe = functools.partial(print, 1)
    bare = pickle.dumps(recipe)
    with watching(tmp_path / "run", "stop"):
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.randn(2, 4)).pow(2).mean().backward()
            optimizer.step()
        torch.save({"model": model.state_dict(), "recipe": recipe}, tmp_path / "checkpoint.pt")
        assert pickle.dumps(recipe) == bare
