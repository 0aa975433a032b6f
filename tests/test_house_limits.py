"""Files, functions and parameter lists of the package, and test files, stay short; exceptions say why, here."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "steadytrain"

FILE_LINES_MAX = 400
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 8

KERNEL = "a Triton kernel takes each pointer and each constant of its compilation as a parameter of its own"
KERNELS = "capture/tensors/statistics/triton_kernel.py"

LONG_FILES: dict[str, str] = {}
LONG_FUNCTIONS = {
    f"{KERNELS}:_reduce_chunks": "a Triton kernel: what one pass over a chunk keeps in registers is one function",
}
MANY_PARAMETERS = {
    **{f"{KERNELS}:{name}": KERNEL for name in ("_reduce_chunks", "_reduce_with_care", "_add_chunks")},
    "api/diagnoses.py:diagnose": "the public function: a keyword for each option of the command, which only grow",
}


def functions(path: Path) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield f"{path.relative_to(PACKAGE).as_posix()}:{node.name}", node


def parameter_count(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Without ``self`` or ``cls``, and without what gathers the others (``*args``, ``**kwargs``)."""
    named = [*node.args.posonlyargs, *node.args.args]
    own = bool(named) and named[0].arg in ("self", "cls")
    return len(named) + len(node.args.kwonlyargs) - own


def sizes() -> Iterator[tuple[str, str, int]]:
    """What is measured, of which file or function, and how much it is."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield "file", path.relative_to(PACKAGE).as_posix(), len(path.read_text(encoding="utf-8").splitlines())
        for name, node in functions(path):
            assert node.end_lineno is not None
            yield "function", name, node.end_lineno - node.lineno + 1
            yield "parameters", name, parameter_count(node)


LIMITS: dict[str, tuple[int, dict[str, str]]] = {
    "file": (FILE_LINES_MAX, LONG_FILES),
    "function": (FUNCTION_LINES_MAX, LONG_FUNCTIONS),
    "parameters": (PARAMETERS_MAX, MANY_PARAMETERS),
}


def test_nothing_is_longer_than_it_may_be_and_no_exception_is_stale() -> None:
    measured = list(sizes())
    for kind, (bound, exceptions) in LIMITS.items():
        over = {name: size for what, name, size in measured if what == kind and size > bound}
        assert {name: size for name, size in over.items() if name not in exceptions} == {}
        assert sorted(exceptions) == sorted(over)


def test_no_file_of_tests_is_longer_than_one_of_the_package() -> None:
    lengths = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in Path(__file__).parent.rglob("*.py")}
    assert len(lengths) > 100
    assert {path.name: length for path, length in lengths.items() if length > FILE_LINES_MAX} == {}


def test_lengths_are_counted_as_a_reader_counts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    method = "    @staticmethod\n    def f(a, /, b, *c, d, **e):\n        pass\n"
    source = f"class A:\n{method}\n    async def g(self, a):\n        pass\n"
    (tmp_path / "a.py").write_text(source, encoding="utf-8")
    expected = [("file", "a.py", 7), ("function", "a.py:f", 2), ("parameters", "a.py:f", 3)]
    assert list(sizes()) == [*expected, ("function", "a.py:g", 2), ("parameters", "a.py:g", 1)]


def test_names_of_test_files_are_unique() -> None:
    """Without packages pytest takes two files of one name for one module."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
