"""Private names of torch stand in one file, each with a test whether this torch has it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from steadytrain.core import torch_names, torch_private
from steadytrain.core.torch_names import NAMES, MissingNameError, TorchAttribute, TorchName
from steadytrain.core.torch_private import ENGINE, VERSION

SOURCES = Path(torch_private.__file__).parents[1]

PUBLIC_TEXTS = frozenset({"torch._C._nn"})
"""What a graph of the compiler calls a module: a text that is compared, not a place that is looked into."""

ONE_OF_THEM = frozenset({"NCCL_RECORDER", "FLIGHT_RECORDER"})
"""Of these a build of torch has one."""

NOT_IN_THE_OLDEST = frozenset({"SAVED_HOOK"})
"""What torch 2.6 lacks; docs/versions.md says what is lost on it."""

ATTRIBUTES = frozenset(
    part for name in NAMES for part in name.path.split(".") if part.startswith("_") and not part.startswith("__")
)


def test_only_one_file_uses_private_names_of_torch() -> None:
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {what}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path not in (Path(torch_private.__file__), Path(torch_names.__file__))
        for line, what in private_names(path.read_text(encoding="utf-8"))
    ]
    assert not found, "belongs in core/torch_private.py:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code",
    [
        "import torch\ntorch._C._current_graph_task_id()",
        "import torch._dynamo",
        "from torch._dynamo import config",
        "from torch.utils.data.dataloader import _BaseDataLoaderIter",
        "from torch import nn\nnn.modules.dropout._DropoutNd",
        "def version(tensor):\n    return tensor._version",
        "def compiled(module):\n    return getattr(module, '_orig_mod', None)",
        "import sys\nsys.modules.get('torch._dynamo.utils')",
    ],
)
def test_a_private_name_is_found(code: str) -> None:
    assert list(private_names(code))


@pytest.mark.parametrize(
    "code",
    [
        '"""About ``torch._dynamo``."""',
        "class Scaled:\n    def get(self):\n        return self._scale",
        "import torch\ntorch.__version__",
        "import os\nos._exit(0)",
    ],
)
def test_what_is_not_private_is_left_alone(code: str) -> None:
    assert not list(private_names(code))


@pytest.mark.parametrize("name", [name for name, value in vars(torch_private).items() if isinstance(value, TorchName)])
def test_this_torch_has_every_name(name: str) -> None:
    one: TorchName = getattr(torch_private, name)
    assert one.lost
    assert not one.lost.endswith(".")
    assert one.works() or name in ONE_OF_THEM | NOT_IN_THE_OLDEST


def test_every_name_is_listed_once() -> None:
    assert len({name.full for name in NAMES}) == len(NAMES)
    assert [name for name in vars(torch_private).values() if isinstance(name, TorchName)] == NAMES


def test_a_missing_name_says_what_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    name, attribute = TorchName("torch:_gone.further", "nothing"), TorchAttribute("torch.nn:Module._gone", "nothing")
    NAMES.remove(name)
    NAMES.remove(attribute)
    assert not name.works()
    assert not attribute.works()
    assert name.loaded() is None
    with pytest.raises(MissingNameError, match=r"torch \S+ has no torch._gone.further: nothing"):
        name()
    assert attribute.on(torch.nn.Module()) is None
    with pytest.raises(AttributeError):
        attribute.of(torch.nn.Module())


def test_an_attribute_is_read() -> None:
    tensor = torch.ones(2)
    tensor.add_(1)
    assert VERSION.of(tensor) == VERSION.on(tensor) == 1


def test_a_name_that_was_replaced_is_found_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.autograd, "_engine_run_backward", len)
    assert ENGINE.now() is len


def test_what_a_watch_needs_is_tested_without_the_compiler() -> None:
    code = "import sys, torch; from steadytrain.core import torch_private; torch_private.require(); "
    code += "print('torch._dynamo' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def test_nothing_is_imported_before_torch_is() -> None:
    code = "import sys; from steadytrain.core import torch_private; "
    code += "assert torch_private.COUNTERS.loaded() is None; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"


def private_names(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each private name: a name under torch, one of its known attributes, or either as a string."""
    tree = ast.parse(source)
    texts = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    roots = {"torch"}
    own = {"self", "cls"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            roots |= {alias.asname or alias.name for alias in node.names}
            if any(map(_is_private, [*str(node.module).split("."), *(alias.name for alias in node.names)])):
                yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Import):
            for alias in node.names:
                parts = alias.name.split(".")
                if parts[0] == "torch" and any(map(_is_private, parts)):
                    yield node.lineno, alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            top = node.value
            while isinstance(top, ast.Attribute):
                top = top.value
            of_torch = isinstance(top, ast.Name) and top.id in roots
            is_own = isinstance(node.value, ast.Name) and node.value.id in own
            if of_torch or (node.attr in ATTRIBUTES and not is_own):
                yield node.lineno, ast.unparse(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            parts = node.value.split(".")
            is_place = parts[0] == "torch" and any(map(_is_private, parts)) and " " not in node.value
            if (node.value in ATTRIBUTES or is_place) and node.value not in PUBLIC_TEXTS:
                yield node.lineno, repr(node.value)


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")
