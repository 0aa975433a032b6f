"""docs/three-ways.md names functions that exist, and each call goes down the rooms or by a contract handed down.

docs/glossary.md and the contracts in docs/ARCHITECTURE.md name code that exists.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs" / "three-ways.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
ARCHITECTURE = ROOT / "docs" / "ARCHITECTURE.md"
LINE = re.compile(r"^( *)- `([\w.]+)`(?: \((?:by contract `([\w.]+)`|(new process))\))?:", re.M)
CALLS_MIN = 60
"""Far fewer would mean that the page is written in another form than the one that is read here."""


@dataclass(frozen=True)
class Call:
    """A line of the page; ``caller`` is the line above it that is indented less."""

    name: str
    contract: str | None
    new_process: bool
    caller: str | None


def calls_of(page: str) -> list[Call]:
    found: list[Call] = []
    above: list[tuple[int, str]] = []
    for indent, name, contract, process in LINE.findall(page):
        while above and above[-1][0] >= len(indent):
            above.pop()
        found.append(Call(name, contract or None, bool(process), above[-1][1] if above else None))
        above.append((len(indent), name))
    return found


def rooms() -> list[str]:
    """From the lowest to the highest, as the import contract has them."""
    layers = re.search(r"^layers = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.M | re.S)
    assert layers is not None
    return re.findall(r'"(\w+)"', layers[1])[::-1]


def found(name: str) -> tuple[ModuleType, Any]:
    """The module that ``name`` lies in, and what it names there."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            module = importlib.import_module(".".join(["steadytrain", *parts[:cut]]))
        except ModuleNotFoundError:
            continue
        value: Any = module
        for part in parts[cut:]:
            value = getattr(value, part)
        return module, value
    raise AssertionError(f"no such module: {name}")


CALLS = calls_of(DOCUMENT.read_text(encoding="utf-8"))


def test_the_page_is_read() -> None:
    assert len(CALLS) >= CALLS_MIN


@pytest.mark.parametrize("name", sorted({call.name for call in CALLS}))
def test_exists_where_it_is_said_to_lie(name: str) -> None:
    module, value = found(name)
    assert callable(value)
    home = getattr(value, "callback", value).__module__  # a command of click is an object around its function
    assert home == module.__name__, f"{name} lies in {home}"


@pytest.mark.parametrize("call", [call for call in CALLS if call.caller], ids=lambda call: f"{call.caller}-{call.name}")
def test_calls_go_down_or_by_a_contract(call: Call) -> None:
    order = rooms()
    assert call.caller is not None
    caller, callee = (order.index(name.split(".")[0]) for name in (call.caller, call.name))
    if call.new_process:
        return
    if call.contract is None:
        assert callee <= caller, f"{call.caller} must not know {call.name}"
        return
    # The caller knows the contract; what implements it has its methods and lies in the same room or above.
    contract_room = order.index(call.contract.split(".")[0])
    assert contract_room <= caller
    assert contract_room <= callee
    _, contract = found(call.contract)
    assert hasattr(contract, call.name.rpartition(".")[2])


@pytest.mark.parametrize("call", [call for call in CALLS if call.caller], ids=lambda call: f"{call.caller}-{call.name}")
def test_the_caller_names_what_it_calls(call: Call) -> None:
    if call.new_process:
        return
    assert call.caller is not None
    module, _ = found(call.caller)
    assert module.__file__ is not None
    text = Path(module.__file__).read_text(encoding="utf-8")
    assert re.search(rf"\b{call.name.rpartition('.')[2]}\b", text), f"{module.__name__} does not name {call.name}"


@pytest.mark.parametrize("name", re.findall(r"\| `([\w.]+)` \|$", GLOSSARY.read_text(encoding="utf-8"), re.M))
def test_a_word_of_the_glossary_is_defined_where_it_says(name: str) -> None:
    module, value = found(name)
    assert callable(value)
    assert value.__module__ == module.__name__


@pytest.mark.parametrize("page", [GLOSSARY, ARCHITECTURE], ids=lambda page: page.stem)
def test_dotted_names_in_a_page_exist(page: Path) -> None:
    named = re.findall(rf"`((?:{'|'.join(rooms())})(?:\.\w+)+)`", page.read_text(encoding="utf-8"))
    assert named
    for name in named:
        found(name)
