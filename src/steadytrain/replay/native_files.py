"""Redirects the files that native libraries open, which Python's file functions never see.

Torch, safetensors, tokenizers, pyarrow, DuckDB and readline open files by path in C, C++ or Rust. Each of their
functions that takes a path is replaced by one that hands over the place in the mirror. Other libraries are not known
here; the kernel's rule refuses their writing, where there is one.
"""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable, Mapping
from functools import wraps
from types import ModuleType
from typing import Any, NamedTuple

from steadytrain.capture.hooks.import_hook import after_import
from steadytrain.core.torch_private import FILE_READER, FILE_WRITER
from steadytrain.replay.file_mirror import FileMirror
from steadytrain.storage.ranks_of_run import launched_ranks


class PathArgument(NamedTuple):
    """A function that takes a path (or a list of paths), by its dotted name in its module."""

    function: str
    position: int
    """Of the path, ``self`` counted."""
    name: str
    writes: bool
    is_static: bool = False


TOKENIZERS = (
    PathArgument("Tokenizer.save", 1, "path", writes=True),
    PathArgument("Tokenizer.from_file", 0, "path", writes=False, is_static=True),
    PathArgument("Tokenizer.train", 1, "files", writes=False),
    PathArgument("models.Model.save", 1, "folder", writes=True),
    *(
        PathArgument(f"models.{model}.{reader}", position, name, writes=False, is_static=True)
        for model, names in (
            ("BPE", ("vocab", "merges")),
            ("WordPiece", ("vocab",)),
            ("WordLevel", ("vocab",)),
        )
        for reader in ("from_file", "read_file")
        for position, name in enumerate(names)
    ),
)
PARQUET = (
    PathArgument("ParquetWriter.__init__", 1, "where", writes=True),
    PathArgument("ParquetFile.__init__", 1, "source", writes=False),
    PathArgument("read_table", 0, "source", writes=False),
)
ARROW = (
    PathArgument("memory_map", 0, "path", writes=False),
    PathArgument("create_memory_map", 0, "path", writes=True),
    PathArgument("output_stream", 0, "source", writes=True),
)
ARROW_CSV = (PathArgument("write_csv", 1, "output_file", writes=True),)
ARROW_FEATHER = (PathArgument("write_feather", 1, "dest", writes=True),)
READLINE = (
    PathArgument("read_history_file", 0, "filename", writes=False),
    PathArgument("write_history_file", 0, "filename", writes=True),
    PathArgument("append_history_file", 1, "filename", writes=True),
)
TORCH = (
    PathArgument("jit.load", 0, "f", writes=False),
    PathArgument("jit.RecursiveScriptModule.save", 1, "f", writes=True),
    PathArgument("_C.ScriptModule.save", 1, "filename", writes=True),
    PathArgument("_C.ScriptModule._save_for_mobile", 1, "filename", writes=True),
    PathArgument("_C.ScriptFunction.save", 1, "filename", writes=True),
    PathArgument("autograd.profiler.profile.export_chrome_trace", 1, "path", writes=True),
    PathArgument("profiler.profiler._add_execution_trace_observer", 0, "output_file_path", writes=True),
)
LIBRARIES: Mapping[str, tuple[PathArgument, ...]] = {
    "tokenizers": TOKENIZERS,
    "pyarrow": ARROW,
    "pyarrow.parquet": PARQUET,
    "pyarrow.csv": ARROW_CSV,
    "pyarrow.feather": ARROW_FEATHER,
    "readline": READLINE,
}
MEMORY = ":memory:"
"""How SQLite and DuckDB name a database without a file."""


def redirect_libraries(mirror: FileMirror) -> None:
    """Replaces the functions of each library once it is imported."""
    _redirect_safetensors(mirror)
    after_import("torch", lambda: _redirect_torch(mirror))
    after_import("pyarrow", lambda: _redirect_arrow_files(mirror))
    after_import("duckdb", lambda: _redirect_duckdb(mirror))
    for name, functions in LIBRARIES.items():

        def imported(name: str = name, functions: tuple[PathArgument, ...] = functions) -> None:
            for function in functions:
                _replace_path(sys.modules[name], function, mirror)

        after_import(name, imported)


def first_written(mirror: FileMirror, theirs: Callable[..., Any], *, position: int = 0) -> Callable[..., Any]:
    """Wraps a function that writes to a path, or to a file object, which stays as it is."""
    return _wrapped(theirs, position, "", lambda path: mirror.writing(path) if path not in ("", MEMORY) else path)


def refuse_attaching(database: sqlite3.Connection, mirror: FileMirror) -> None:
    """A statement opens no other database file by its name: SQLite would write to it in C."""

    def judge(action: int, name: str | None, *_: str | None) -> int:
        is_file = action == sqlite3.SQLITE_ATTACH and name not in ("", MEMORY)
        if is_file and (name is None or name.startswith("file:") or not mirror.passes(mirror.named(name))):
            return sqlite3.SQLITE_DENY
        return sqlite3.SQLITE_OK

    database.set_authorizer(judge)


def _wrapped(
    theirs: Callable[..., Any], position: int, name: str, redirect: Callable[[Any], Any]
) -> Callable[..., Any]:
    def place(value: Any) -> Any:
        if isinstance(value, list | tuple):
            return [place(part) for part in value]
        if not is_path(value):
            return value
        found = redirect(value)
        return found if isinstance(value, bytes) and isinstance(found, bytes) else os.fsdecode(found)

    @wraps(theirs)
    def ours(*args: Any, **kwargs: Any) -> Any:
        if len(args) > position:
            args = (*args[:position], place(args[position]), *args[position + 1 :])
        elif name in kwargs:
            kwargs[name] = place(kwargs[name])
        return theirs(*args, **kwargs)

    return ours


def _replace_path(module: ModuleType, known: PathArgument, mirror: FileMirror) -> None:
    """Replaces one function, if this version of the library has it and lets it be replaced."""
    *owners, attribute = known.function.split(".")
    owner: Any = module
    for name in owners:
        owner = getattr(owner, name, None)
    theirs = getattr(owner, attribute, None)
    if theirs is None:
        return
    ours = _wrapped(theirs, known.position, known.name, mirror.writing if known.writes else mirror.reading)
    setattr(owner, attribute, staticmethod(ours) if known.is_static else ours)


def _redirect_torch(mirror: FileMirror) -> None:
    import torch

    for name, redirect in ((FILE_WRITER, mirror.writing), (FILE_READER, mirror.reading)):
        setattr(name.owner(), name.attribute, _redirected(name.now(), redirect))
    shared = _mapped(torch.UntypedStorage.from_file, mirror)
    torch.UntypedStorage.from_file = staticmethod(shared)  # type: ignore[method-assign]
    torch.from_file = _mapped(torch.from_file, mirror)
    for function in TORCH:
        _replace_path(torch, function, mirror)
    after_import("torch.distributed", lambda: _redirect_store(mirror))


def _redirect_store(mirror: FileMirror) -> None:
    """Redirects the file by which ranks find each other. The store writes it and removes it at its end."""
    import torch

    theirs: type[Any] | None = getattr(torch.distributed, "FileStore", None)
    if theirs is not None:
        store = _redirected(theirs, lambda path: _place_of_store(path, mirror))
        for name in ("", ".rendezvous", ".distributed_c10d"):
            module: Any = sys.modules.get(f"torch.distributed{name}")
            if hasattr(module, "FileStore"):
                module.FileStore = store


def _place_of_store(path: Any, mirror: FileMirror) -> Any:
    """Where the store's file lies. Each rank has a folder of its own, so several would wait there for each other."""
    if launched_ranks() > 1:
        raise RuntimeError("ranks that find each other by a file cannot be launched together again; use env://")
    return mirror.writing(path)


def _redirect_arrow_files(mirror: FileMirror) -> None:
    module: Any = sys.modules["pyarrow"]
    theirs: Any = module.OSFile

    class OSFile(theirs):  # type: ignore[misc]
        def __new__(cls, path: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
            place = mirror.reading(path) if mode in ("r", "rb") else mirror.writing(path, keep="w" not in mode)
            return theirs.__new__(cls, os.fsdecode(place), mode, *args, **kwargs)

    module.OSFile = OSFile


def _redirect_duckdb(mirror: FileMirror) -> None:
    module: Any = sys.modules["duckdb"]
    theirs = module.connect

    @wraps(theirs)
    def ours(database: Any = MEMORY, *args: Any, **kwargs: Any) -> Any:
        if is_path(database) and os.fsdecode(database) and not os.fsdecode(database).startswith(":"):
            redirect = mirror.reading if kwargs.get("read_only") or args[:1] == (True,) else mirror.writing
            database = os.fsdecode(redirect(database))
        return theirs(database, *args, **kwargs)

    module.connect = ours


def _mapped(theirs: Callable[..., Any], mirror: FileMirror) -> Callable[..., Any]:
    """Wraps a function that maps a file into memory, which with ``shared`` writes to it."""

    def ours(path: Any, shared: bool = False, *args: Any, **kwargs: Any) -> Any:
        return theirs((mirror.writing if shared else mirror.reading)(path), shared, *args, **kwargs)

    return ours


def _redirect_safetensors(mirror: FileMirror) -> None:
    import safetensors

    read = _wrapped(safetensors.safe_open, 0, "filename", mirror.reading)
    written = _wrapped(safetensors.serialize_file, 1, "filename", mirror.writing)
    places: list[ModuleType | None] = [safetensors]
    places += [sys.modules.get(f"safetensors.{name}") for name in ("torch", "numpy")]
    for module in filter(None, places):
        for name, ours in (("safe_open", read), ("serialize_file", written)):
            if hasattr(module, name):
                setattr(module, name, ours)


def is_path(value: object) -> bool:
    return isinstance(value, str | bytes | os.PathLike)


def _redirected(theirs: type[Any], redirect: Callable[[Any], Any]) -> type[Any]:
    """A subclass whose first argument, if it is a path, is redirected."""

    def begin(self: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        theirs.__init__(self, str(redirect(path)) if is_path(path) else path, *args, **kwargs)

    return type(theirs.__name__, (theirs,), {"__init__": begin, "__module__": theirs.__module__})
