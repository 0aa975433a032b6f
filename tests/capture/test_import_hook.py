"""A callback after the first import of a module, and nothing else changed about that import."""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import warm
from steadytrain.capture.hooks.import_hook import after_import, forget_imports

NAME = "module_that_tells"


@pytest.fixture
def module_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / f"{NAME}.py"
    file.write_text("value = 3\n")
    finders = list(sys.meta_path)
    yield file
    sys.modules.pop(NAME, None)
    assert sys.meta_path == finders


def test_it_is_called_once_after_the_modules_own_code(module_file: Path) -> None:
    seen: list[int] = []
    after_import(NAME, lambda: seen.append(sys.modules[NAME].value))
    assert seen == []
    module = importlib.import_module(NAME)
    importlib.reload(module)
    assert seen == [3]


def test_the_module_looks_as_it_would_without_us(module_file: Path) -> None:
    plain = importlib.import_module(NAME)
    del sys.modules[NAME]
    after_import(NAME, lambda: None)
    ours = importlib.import_module(NAME)
    assert ours.__spec__ == plain.__spec__ or vars(ours.__spec__).keys() == vars(plain.__spec__).keys()
    assert type(ours.__loader__) is type(plain.__loader__) is type(ours.__spec__.loader)
    assert ours.__file__ == plain.__file__ == str(module_file)
    assert ours.__loader__.get_source(NAME) == "value = 3\n"


def test_a_module_that_is_there_already_calls_at_once(module_file: Path) -> None:
    importlib.import_module(NAME)
    seen: list[str] = []
    after_import(NAME, lambda: seen.append("now"))
    assert seen == ["now"]


def test_two_callbacks_are_both_called(module_file: Path) -> None:
    seen: list[str] = []
    after_import(NAME, lambda: seen.append("first"))
    after_import(NAME, lambda: seen.append("second"))
    importlib.import_module(NAME)
    assert sorted(seen) == ["first", "second"]


def test_an_import_that_fails_fails_as_it_would_and_the_next_one_calls(module_file: Path) -> None:
    module_file.write_text("raise ImportError('not today')\n")
    seen: list[str] = []
    after_import(NAME, lambda: seen.append("called"))
    with pytest.raises(ImportError, match="not today"):
        importlib.import_module(NAME)
    assert seen == []
    module_file.write_text("value = 4  # of another length than before\n")
    importlib.invalidate_caches()
    assert importlib.import_module(NAME).value == 4
    assert seen == ["called"]


def test_asking_whether_a_module_exists_does_not_use_the_callback_up(module_file: Path) -> None:
    """Libraries ask ``importlib.util.find_spec("torch")`` before anything is imported."""
    seen: list[str] = []
    after_import(NAME, lambda: seen.append("called"))
    assert importlib.util.find_spec(NAME) is not None
    assert seen == []
    importlib.import_module(NAME)
    assert seen == ["called"]


def test_a_module_that_does_not_exist_stays_missing(module_file: Path) -> None:
    module_file.unlink()
    after_import(NAME, lambda: None)
    assert importlib.util.find_spec(NAME) is None
    with pytest.raises(ModuleNotFoundError, match=NAME):
        importlib.import_module(NAME)
    forget_imports()


@pytest.mark.parametrize("times", [1, 2])
def test_forgetting_takes_every_finder_out(times: int, module_file: Path) -> None:
    callbacks: list[Callable[[], None]] = [lambda: pytest.fail("called") for _ in range(times)]
    for callback in callbacks:
        after_import(NAME, callback)
    forget_imports()
    importlib.import_module(NAME)


def test_one_wish_is_taken_back_and_the_others_stay(module_file: Path) -> None:
    seen: list[str] = []
    take_back = after_import(NAME, lambda: pytest.fail("called"))
    after_import(NAME, lambda: seen.append("called"))
    take_back()
    importlib.import_module(NAME)
    assert seen == ["called"]
    take_back()
    after_import(NAME, lambda: seen.append("again"))()
    assert seen == ["called", "again"]


def test_a_module_that_is_being_imported_calls_after_its_code_has_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """safetensors.torch imports torch, where a watch begins and asks for safetensors.torch."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, code in (("hook_inner", ""), ("hook_outer", "import hook_inner\nvalue = 1\n"), ("hook_other", "")):
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    seen: list[object] = []
    take_back = []

    def inner_is_there() -> None:
        take_back.append(after_import("hook_outer", lambda: seen.append(sys.modules["hook_outer"].value)))
        take_back.append(after_import("hook_outer", lambda: seen.append("taken back")))

    before = list(sys.meta_path)
    after_import("hook_inner", inner_is_there)
    importlib.import_module("hook_outer")
    assert seen == []
    take_back[1]()
    importlib.import_module("hook_other")
    assert seen == [1]
    assert sys.meta_path == before
    for name in ("hook_inner", "hook_outer", "hook_other"):
        sys.modules.pop(name, None)


IMPORTS_IT_FIRST = """
from safetensors.torch import save_file
import torch
from torch import nn

torch.manual_seed(0)
model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 13):
    x = torch.randn(16, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean() * (float("nan") if step == 12 else 1.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    save_file(model.state_dict(), "weights.safetensors")
"""


@pytest.mark.long
def test_a_script_that_imports_safetensors_first_is_watched_and_replayed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(IMPORTS_IT_FIRST, encoding="utf-8")

    def steadytrain(*command: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, warm.COLD: "1"}
        words = [sys.executable, "-m", "steadytrain", *command]
        return subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    ran = steadytrain("run", "--runs-dir", "runs", "--name", "run", "--to", "none", "train.py")
    assert ran.returncode == 70, ran.stderr
    assert "could not attach" not in ran.stderr
    replayed = steadytrain("replay", "--runs-dir", "runs", "run")
    assert "cannot tell" not in replayed.stdout + replayed.stderr
