"""What a replay launches: the script, the loop of a notebook's two functions, or nothing and a word on why."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest

from steadytrain.attach.own_command_line import own_command_line
from steadytrain.core.errors import UsageError
from steadytrain.core.interactive import notebook_name
from steadytrain.replay import failing_step
from steadytrain.replay.loop_command import LOOP_MODULE, parse_loop, replacing_the_command, with_loop


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module with the two functions."""
    module: Any = ModuleType("parts")
    exec("def loss_of(model, batch): ...\ndef build(): ...", module.__dict__)
    monkeypatch.setitem(sys.modules, "parts", module)
    return module


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a notebook's kernel looks like to code in its cells."""
    ipython: Any = ModuleType("IPython")
    ipython.get_ipython = lambda: type("Shell", (), {"kernel": object()})()
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.delattr(sys.modules["__main__"], "__file__", raising=False)
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/my training.ipynb")


def typed(model: Any, batch: Any) -> None: ...


typed.__module__ = "__main__"


def test_a_script_is_launched_as_it_was(parts: Any) -> None:
    own = own_command_line(parts.loss_of, parts.build)
    assert (own.script, own.typed_into, own.note) == (sys.argv[0], None, None)


def test_a_notebook_with_both_functions_is_their_loop(notebook: None, parts: Any) -> None:
    own = own_command_line(parts.loss_of, parts.build)
    assert own.is_module
    assert own.argv == ("-m", LOOP_MODULE, "parts:loss_of", "parts:build")
    assert (own.stem, own.note) == ("my training", None)


def test_a_notebook_without_them_cannot_be_launched(notebook: None, parts: Any) -> None:
    assert own_command_line(None, None).note is None
    assert "step_fn alone" in str(own_command_line(parts.loss_of, None).note)
    own = own_command_line(typed, parts.build)
    assert own.script == ""
    assert own.argv == ("my training.ipynb",)
    assert "typed: not in a module" in str(own.note)
    assert "%%writefile parts.py" in str(own.note)


def test_build_goes_with_a_step_function(parts: Any) -> None:
    for step_fn, build in ((None, parts.build), (parts.loss_of, 3)):
        with pytest.raises(UsageError, match="build must be a function"):
            own_command_line(step_fn, build)


@pytest.mark.parametrize(
    "environment",
    [
        {"script": None, "module": None, "typed_into": "notebook"},
        {"script": "/usr/lib/python3/ipykernel_launcher.py", "module": None},
        {"script": None, "module": None, "typed_into": "prompt"},
    ],
)
def test_what_was_typed_in_is_refused_before_anything_is_launched(environment: dict[str, Any], parts: Any) -> None:
    with pytest.raises(UsageError, match="cannot be launched again: its steps need a function"):
        failing_step.check_launch(environment)
    with replacing_the_command(parse_loop(parts.loss_of, "parts:build")):
        failing_step.check_launch(environment)
        assert with_loop(environment)["argv"] == ["-m", LOOP_MODULE, "parts:loss_of", "parts:build"]
    assert with_loop(environment) is environment


def test_two_functions_are_given_together_and_can_be_imported(parts: Any) -> None:
    for step_fn, build, said in (
        ("parts:loss_of", None, "go together"),
        (typed, parts.build, "typed is not in a module"),
        ("parts", "parts:build", "must be MODULE:NAME"),
    ):
        with pytest.raises(UsageError, match=said):
            parse_loop(step_fn, build)


def test_a_notebook_has_the_name_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "3f2a-kernel-id")
    assert notebook_name() == "notebook"
