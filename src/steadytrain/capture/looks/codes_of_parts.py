"""Finds categories that are numbered anew for each part of the data, so that one number means another category in each.

The mistake has three parts: a function, or the body of a loop, numbers the values of a column by the values that occur
in it; the numbers go on without the values; and it does so for several parts, in a loop over files, days or chunks, or
for the training data and the held-out ones. A column may well have numbers of its own, a fixed list of categories keeps
its numbers, and the numbers of nodes or groups within a batch are right for that batch alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Sequence

from steadytrain.capture.looks.rebuilt_vocabularies import grown_by, is_empty_dictionary, rebuilt_vocabularies
from steadytrain.capture.looks.split_names import called_for_both_splits
from steadytrain.capture.looks.syntax_trees import (
    argument_names,
    body_of,
    dotted,
    last_name,
    names_called,
    names_read,
    names_stored,
    scopes,
    statements,
    walk,
)

ENCODERS = frozenset({"LabelEncoder", "OrdinalEncoder"})
COLUMNS = re.compile(r"(?i).*(col|feat|field|cat|attr|key|name|target|label|class|tag|lang).*|c|f|k")
"""What a loop over the columns of a table calls them: each has numbers of its own."""

PARTS = re.compile(r"(?i)(.*_)?(files?|days?|weeks?|months?|chunks?|shards?|exports?|dumps?|downloads?|paths?)(_.*)?")
"""What a loop over the parts of the data goes through, whatever it calls them: ``for name, frame in files``."""

LOCAL = re.compile(
    r"(?i).*(node|graph|group|segment|cluster|edge|atom|entity|instance|bbox|seq|session|ray|voxel|local).*|batch"
)
"""What is numbered within a batch or a sample, and rightly so."""

GIVEN = re.compile(r"(?i).*(vocab|mapping|codes|encoder|lookup|table|categories|cats|levels|to_id|2id|stoi).*")
"""An argument that hands a mapping on from part to part."""

READS_CODES = frozenset({"Embedding", "EmbeddingBag", "embedding", "one_hot", "embedding_bag"})
KEEPS = frozenset({"dump", "dumps", "save", "save_json", "to_json", "to_pickle", "set_categories", "CategoricalDtype"})
CALLS_DEEP = 3
"""Functions that call each other, down to the one that numbers."""

Loop = ast.For | ast.AsyncFor


def codes_of_parts(tree: ast.Module) -> Iterator[int]:
    """The line that numbers the categories of the first such part."""
    called = names_called(tree)
    if not called & READS_CODES or called & KEEPS or any(rebuilt_vocabularies(tree)):
        return
    numbering = _numbering(tree)
    for scope in scopes(tree):
        for loop in (one for one in statements(scope) if isinstance(one, (ast.For, ast.AsyncFor))):
            line = _of_loop(loop, numbering)
            if line:
                yield line
                return
    for name, line in numbering.items():
        if called_for_both_splits(tree, name) or _for_each(tree, name):
            yield line
            return


def _numbering(tree: ast.Module) -> dict[str, int]:
    """The functions that number the values of what they are given, also by others that they call: name and line."""
    made: dict[ast.AST, str] = {
        method: holder.name
        for holder in walk(tree)
        if isinstance(holder, ast.ClassDef)
        for method in holder.body
        if isinstance(method, ast.FunctionDef) and method.name == "__init__"
    }
    functions = [(made.get(one, one.name), one) for one in scopes(tree) if not isinstance(one, ast.Module)]
    found: dict[str, int] = {}
    for _ in range(CALLS_DEEP):
        for name, scope in functions:
            part = argument_names(scope) - {"self", "cls"}
            given = any(map(GIVEN.fullmatch, part))
            if name not in found and not given and not LOCAL.fullmatch(name):
                line = _numbers(statements(scope), part, found)
                if line:
                    found[name] = line
    return found


def _numbers(nodes: Sequence[ast.AST], part: set[str], numbering: dict[str, int]) -> int:
    """The line that numbers values of the variables in ``part``, and of what is made of them; 0 for none."""
    derived = _derived(nodes, part)
    fitted, empty, kept = _holders(nodes, _is_encoder), _holders(nodes, is_empty_dictionary), _kept(nodes)
    for one in nodes:
        if isinstance(one, (ast.Assign, ast.Return, ast.Expr)) and one.value is not None and not _is_local(one):
            for call in (each for each in walk(one.value) if isinstance(each, (ast.Call, ast.Attribute, ast.DictComp))):
                read = names_read(call)
                if not read & derived or any(map(LOCAL.fullmatch, (*read, grown_by(call)))):
                    continue
                if (_makes_numbers(call, one, fitted) and not kept & _stored(one)) or grown_by(call) in empty - kept:
                    return call.lineno
                if isinstance(call, ast.Call) and last_name(call.func) in numbering:
                    return numbering[last_name(call.func)]
    return 0


def _holders(nodes: Sequence[ast.AST], holds: Callable[[ast.AST], bool]) -> set[str]:
    """The variables that are given a value of this kind."""
    assigned = (one for one in nodes if isinstance(one, ast.Assign) and holds(one.value))
    return {dotted(target) for one in assigned for target in one.targets}


def _is_encoder(value: ast.AST) -> bool:
    return isinstance(value, ast.Call) and last_name(value.func) in ENCODERS


def _makes_numbers(node: ast.AST, statement: ast.AST, fitted: set[str]) -> bool:
    """Whether ``node`` gives numbers to values in the order in which these values occur, and forgets the values."""
    if isinstance(node, ast.Attribute):
        return node.attr == "codes" and _is_plain_category(node.value)
    if isinstance(node, ast.DictComp):
        iterated = node.generators[0].iter
        within = iterated.args[0] if isinstance(iterated, ast.Call) and iterated.args else None
        ordered = isinstance(iterated, ast.Call) and last_name(iterated.func) == "enumerate"
        return ordered and within is not None and _are_distinct(within)
    if not isinstance(node, ast.Call):
        return False
    name = last_name(node.func)
    if name == "factorize":
        return not _names_part(statement, 1)
    if name == "unique":
        return (
            dotted(node.func).startswith(("np.", "numpy."))
            and any(one.arg == "return_inverse" for one in node.keywords)
            and not _names_part(statement, 0)
        )
    if name == "fit_transform" and isinstance(node.func, ast.Attribute):
        return dotted(node.func.value) in fitted or _is_encoder(node.func.value)
    return False


def _are_distinct(values: ast.expr) -> bool:
    distinct = names_called(values) & {"set", "unique", "drop_duplicates"}
    return bool(distinct) or any(isinstance(one, (ast.SetComp, ast.Set)) for one in walk(values))


def _is_plain_category(value: ast.AST) -> bool:
    """``x.astype("category").cat``, ``pd.Categorical(x)`` and ``pd.Series(x, dtype="category").cat``."""
    for node in walk(value):
        if isinstance(node, ast.Call):
            name = last_name(node.func)
            kinds = [*node.args, *(one.value for one in node.keywords)]
            if name in ("astype", "Series") and any(
                isinstance(one, ast.Constant) and one.value == "category" for one in kinds
            ):
                return True
            if name == "Categorical" and len(kinds) == 1:
                return True
    return False


def _names_part(statement: ast.AST, part: int) -> bool:
    """Whether one part of what a call returns gets a name that is no underscore; the whole may keep everything."""
    if not isinstance(statement, ast.Assign):
        return False
    target = statement.targets[0]
    if not isinstance(target, ast.Tuple):
        return not isinstance(statement.value, ast.Subscript)
    return part < len(target.elts) and last_name(target.elts[part]).strip("_") != ""


def _kept(nodes: Sequence[ast.AST]) -> set[str]:
    """Mappings that are returned beside the numbers, or kept on an object."""
    returned = [one.value for one in nodes if isinstance(one, ast.Return) and isinstance(one.value, ast.Tuple)]
    return {dotted(part) for value in returned for part in value.elts if dotted(part)}


def _stored(statement: ast.AST) -> set[str]:
    """The dictionaries that a statement makes: numbers alone are no mapping."""
    if not isinstance(statement, ast.Assign) or not isinstance(statement.value, ast.DictComp):
        return set()
    return {dotted(target) for target in statement.targets if dotted(target)}


def _is_local(statement: ast.AST) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else ()
    names = {
        last_name(part) for target in targets for part in walk(target) if isinstance(part, (ast.Name, ast.Attribute))
    }
    return any(LOCAL.fullmatch(name) for name in names)


def _derived(nodes: Sequence[ast.AST], part: set[str]) -> set[str]:
    """``part`` and the variables that are made of it."""
    derived = set(part)
    for one in nodes:
        if isinstance(one, ast.Assign) and names_read(one.value) & derived:
            derived |= {name for target in one.targets for name in names_stored(target)}
        elif isinstance(one, (ast.For, ast.AsyncFor, ast.comprehension)) and names_read(one.iter) & derived:
            derived |= names_stored(one.target)
    return derived


# -- several parts -----------------------------------------------------------------------------------------------------


def _of_loop(loop: Loop, numbering: dict[str, int]) -> int:
    """The line that a loop over parts numbers anew in each pass; 0 if it does not, or if it is over columns."""
    nodes = body_of(loop)
    renewed = names_stored(loop.target)
    if _is_over_columns(loop, renewed) or any(_makes_optimizer(one) for one in nodes):
        return 0
    made = (one for one in nodes if isinstance(one, ast.Assign) and names_called(one.value))
    renewed |= {name for one in made for target in one.targets for name in names_stored(target)}
    return _numbers(nodes, renewed, numbering)


def _is_over_columns(loop: Loop, renewed: set[str]) -> bool:
    """Whether a pass is a column, by its name or because a table is asked for it."""
    over = {last_name(one) for one in walk(loop.iter) if isinstance(one, (ast.Name, ast.Attribute))}
    names = set() if any(map(PARTS.fullmatch, over)) else renewed | over
    keys = (one.slice for one in body_of(loop) if isinstance(one, ast.Subscript))
    asked = {key.id for key in keys if isinstance(key, ast.Name)}
    return any(COLUMNS.fullmatch(name) for name in names) or bool(asked & renewed)


def _makes_optimizer(node: ast.AST) -> bool:
    """Whether a call gets the parameters of a model, and is not one of a function that clips or frees them."""
    if not isinstance(node, ast.Call) or TAKES_PARAMETERS.search(last_name(node.func)):
        return False
    given = (*node.args, *(one.value for one in node.keywords))
    return any(isinstance(one, ast.Attribute) and one.attr == "parameters" for value in given for one in walk(value))


TAKES_PARAMETERS = re.compile("clip|norm|zip|sum|list|numel|requires_grad|enumerate|all|any|len")
"""Functions that are given parameters and make no optimizer."""


def _for_each(tree: ast.Module, name: str) -> bool:
    """Whether ``name`` is called for each part in a list, or for each batch by a loader."""
    for one in walk(tree):
        if isinstance(one, ast.keyword) and one.arg == "collate_fn" and last_name(one.value) == name:
            return True
        if isinstance(one, (ast.ListComp, ast.GeneratorExp)) and isinstance(one.elt, ast.Call):
            renewed = names_stored(one.generators[0].target)
            over = renewed | {last_name(each) for each in walk(one.generators[0].iter) if isinstance(each, ast.Name)}
            columns = any(COLUMNS.fullmatch(each) for each in over)
            if last_name(one.elt.func) == name and not columns and names_read(one.elt) & renewed:
                return True
    return False
