"""Patches that leave rows out of the data set."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator

from steadytrain.diagnosis.patches.edits import CannotPatchError, Edit, Source, calls, keyword, name_of
from steadytrain.diagnosis.patches.wound import Wound

ROWS_MAX = 16


def without_rows(source: Source, wound: Wound) -> Iterator[Edit]:
    """The only loader gets the data set without the rows that hold NaN or Inf.

    Raises:
        CannotPatchError: no row is known by its place in the data set, or the script makes no loader or several.
    """
    if not wound.rows:
        raise CannotPatchError("no row of a data set is known to hold NaN or Inf")
    if len(wound.rows) > ROWS_MAX:
        raise CannotPatchError(f"{len(wound.rows)} rows of the batch hold NaN or Inf: look for what made them")
    loaders = calls(source, lambda one: name_of(one) == "DataLoader" and _data_set(one) is not None)
    if len(loaders) > 1:
        loaders = [one for one in loaders if _shuffles(one)]
    if len(loaders) != 1:
        raise CannotPatchError(f"the script makes {len(loaders) or 'no'} loaders of training data, not one")
    if keyword(loaders[0], "sampler") is not None or keyword(loaders[0], "batch_sampler") is not None:
        raise CannotPatchError("the loader has a sampler of its own, which draws the rows")
    given = _data_set(loaders[0])
    assert given is not None
    statement, name = source.statement(loaders[0]), source.text(given)
    if not isinstance(given, ast.Name | ast.Attribute):
        name = _unused(source, "dataset")
        yield source.before(statement, f"{name} = {source.text(given)}")
    rows, kept = ", ".join(map(str, sorted(wound.rows))), _unused(source, "kept")
    yield source.before(statement, f"{kept} = [row for row in range(len({name})) if row not in {{{rows}}}]")
    yield source.replaced(given, f"{_subset(source)}({name}, {kept})")


def _data_set(loader: ast.Call) -> ast.expr | None:
    first = loader.args[0] if loader.args else keyword(loader, "dataset")
    return None if isinstance(first, ast.Starred) else first


def _shuffles(loader: ast.Call) -> bool:
    given = keyword(loader, "shuffle")
    return isinstance(given, ast.Constant) and given.value is True


def _unused(source: Source, name: str) -> str:
    used = {node.id for node in ast.walk(source.tree) if isinstance(node, ast.Name)}
    names = itertools.chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(one for one in names if one not in used)


def _subset(source: Source) -> str:
    """How the script may name ``torch.utils.data.Subset``."""
    for node in ast.walk(source.tree):
        names = node.names if isinstance(node, ast.Import) else []
        if any(one.name.partition(".")[0] == "torch" and one.asname is None for one in names):
            return "torch.utils.data.Subset"
    raise CannotPatchError("the script does not `import torch`")
