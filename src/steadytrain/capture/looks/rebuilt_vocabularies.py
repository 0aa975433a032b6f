"""Finds a vocabulary that is built anew for each text, so that an id means another token in each of them.

The mistake has three parts: ids are given to the tokens of a text by their order; the same scope reads that text with
them; and it does so for several texts, in a loop or for the training text and a held-out one. A vocabulary may well
grow over all texts, be given, saved or loaded, or belong to one language, column, class or graph; and a loop may make a
model for each text.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from steadytrain.capture.looks.split_names import called_for_both_splits
from steadytrain.capture.looks.syntax_trees import (
    argument_names,
    body_of,
    dotted,
    last_name,
    names_read,
    names_stored,
    scopes,
    statements,
    walk,
)

VOCABULARY = re.compile(
    r"(?i).*(vocab|stoi|ctoi|ttoi|wtoi|c2i|w2i|t2i|alphabet|tokeni[sz]er|word_?index|(char|word|tok|token|ch|sym|symbol)s?"
    r"_?(to|2|_)_?(ix|ids?|idx|int|index|i|num|n|map)(?![a-z])|(char|token)_?map).*|tok"
)
TOKENS = re.compile(
    r"(?i)(.*_)?(words?|toks?|tokens?|chars?|ch|texts?|sentences?|corpus|docs?|documents?|strings?)(_.*)?"
)
"""What a vocabulary is made of. Numbers of classes, columns and nodes are given to other things."""

APART = re.compile(
    r"(?i).*(col|feat|field|lang|locale|domain|side|src|tgt|source|target|key|attr|task|label|class|tag).*"
)
"""Names of what has a vocabulary of its own."""

SAVES = frozenset({"dump", "dumps", "save", "save_json"})
FILLS = frozenset({"append", "extend", "update", "add"})
Loop = ast.For | ast.AsyncFor | ast.ListComp | ast.GeneratorExp | ast.SetComp


def rebuilt_vocabularies(tree: ast.Module) -> Iterator[int]:
    """The line that builds the first such vocabulary."""
    builders = set(_builders(tree))
    yield from itertools.islice(itertools.chain(_in_loops(tree, builders), _by_calls(tree)), 1)


# -- a vocabulary that is built of a text ------------------------------------------------------------------------------


def _builders(tree: ast.Module) -> Iterator[str]:
    """Functions that return a vocabulary of the text that they are given, and classes that build one in the making."""
    for scope in scopes(tree):
        if not isinstance(scope, ast.Module):
            built = _built(statements(scope), argument_names(scope) - {"self"})
            returned = [each.value for each in statements(scope) if isinstance(each, ast.Return) and each.value]
            if any(dotted(value) in built or _gives_ids(value) for value in returned):
                yield scope.name
    for holder, method in _makings(tree):
        if any("." in name for name in _built(statements(method), argument_names(method) - {"self"})):
            yield holder.name


def _makings(tree: ast.Module) -> Iterator[tuple[ast.ClassDef, ast.FunctionDef]]:
    for holder in (one for one in walk(tree) if isinstance(one, ast.ClassDef)):
        for method in holder.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                yield holder, method


def _built(nodes: Sequence[ast.AST], text: set[str], builders: Iterable[str] = ()) -> dict[str, int]:
    """The vocabularies that ``nodes`` build of the variables in ``text`` and of what is made of them: name and line.

    A vocabulary that is assigned in two ways may be kept from before, and one that is given is no new one.
    """
    if any(VOCABULARY.fullmatch(name) for name in text):
        return {}
    derived = _derived(nodes, text)
    assigned = [one for one in nodes if isinstance(one, ast.Assign)]
    made = {dotted(one.targets[0]): one for one in assigned}
    looped = {name for one in nodes if isinstance(one, (ast.For, ast.AsyncFor)) for name in names_stored(one.target)}
    looped |= {name for one in nodes if isinstance(one, ast.comprehension) for name in names_stored(one.target)}
    of_tokens = any(TOKENS.fullmatch(name.rpartition(".")[2]) for name in derived | looped) or any(map(_splits, nodes))
    found: dict[str, int] = {}
    for one in nodes:
        if isinstance(one, ast.Assign) and _read(one.value) & derived:
            called = last_name(one.value.func) if isinstance(one.value, ast.Call) else ""
            if (_gives_ids(one.value) and not _lists_given(one.value, text)) or called in builders:
                found[dotted(one.targets[0])] = one.lineno
        grown = made.get(grown_by(one))
        if grown is not None and is_empty_dictionary(grown.value) and looped & derived:
            found[grown_by(one)] = grown.lineno
    times = [dotted(target) for one in assigned for target in one.targets]
    saved = _saved(nodes)
    return {
        name: line
        for name, line in found.items()
        if name and times.count(name) == 1 and not {name} & (text | saved)
        if VOCABULARY.fullmatch(name.rpartition(".")[2]) or (of_tokens and not APART.fullmatch(name))
    }


def _gives_ids(value: ast.AST) -> bool:
    """``{token: i for i, token in enumerate(...)}``, ``dict(zip(tokens, range(n)))``."""
    if isinstance(value, ast.DictComp):
        iterated = value.generators[0].iter
        called = last_name(iterated.func) if isinstance(iterated, ast.Call) else ""
        return len(value.generators) == 1 and called in ("enumerate", "zip") and not isinstance(value.value, ast.Call)
    if isinstance(value, ast.Call) and last_name(value.func) == "dict" and value.args:
        zipped = value.args[0]
        return (
            isinstance(zipped, ast.Call)
            and last_name(zipped.func) == "zip"
            and any(isinstance(one, ast.Call) and last_name(one.func) in ("range", "count") for one in zipped.args)
        )
    return False


def _lists_given(value: ast.AST, given: set[str]) -> bool:
    """Whether the tokens are numbered as they were given: ``enumerate(chars)`` of an argument. Whoever gives the list
    may give the same one for each text."""
    counted = value.generators[0].iter if isinstance(value, ast.DictComp) else next(iter(_arguments(value)), None)
    tokens = next(iter(_arguments(counted)), None) if isinstance(counted, ast.Call) else None
    return isinstance(tokens, ast.Name) and tokens.id in given


def _arguments(call: ast.AST | None) -> list[ast.expr]:
    return call.args if isinstance(call, ast.Call) else []


def is_empty_dictionary(value: ast.AST) -> bool:
    """``{}`` and ``dict()``, and a dictionary that is written out."""
    return isinstance(value, ast.Dict) or (
        isinstance(value, ast.Call) and last_name(value.func) == "dict" and not value.args
    )


def grown_by(node: ast.AST) -> str:
    """``vocab`` of ``vocab[word] = len(vocab)`` and of ``vocab.setdefault(word, len(vocab))``, "" of all others."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        name, value = dotted(node.targets[0].value), node.value
    elif isinstance(node, ast.Call) and last_name(node.func) == "setdefault" and len(node.args) == 2:
        name, value = dotted(node.func.value) if isinstance(node.func, ast.Attribute) else "", node.args[1]
    else:
        return ""
    return name if isinstance(value, ast.Call) and last_name(value.func) == "len" else ""


def _splits(node: ast.AST) -> bool:
    """Whether ``node`` splits a text into words."""
    return (
        isinstance(node, ast.Call)
        and last_name(node.func) == "split"
        and isinstance(node.func, ast.Attribute)
        and (not node.args or isinstance(node.args[0], ast.Constant))
    )


def _saved(nodes: Sequence[ast.AST]) -> set[str]:
    """Vocabularies that are saved, so that they may be used again."""
    calls = [one for one in nodes if isinstance(one, ast.Call) and last_name(one.func) in SAVES]
    return {dotted(given) for one in calls for given in one.args}


def _derived(nodes: Sequence[ast.AST], text: set[str]) -> set[str]:
    """``text`` and the variables that are made of it."""
    derived, assigned = set(text), set()
    for one in nodes:
        if isinstance(one, ast.Assign):
            names = {name for target in one.targets for name in (*names_stored(target), dotted(target)) if name}
            assigned |= names
            derived |= names if _read(one.value) & derived else set()
        elif isinstance(one, (ast.For, ast.AsyncFor, ast.comprehension)) and _read(one.iter) & derived:
            derived |= names_stored(one.target)
        elif isinstance(one, ast.withitem) and one.optional_vars is not None and _read(one.context_expr) & derived:
            derived |= names_stored(one.optional_vars)
        elif isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr in FILLS:
            filled = {dotted(one.func.value)} & assigned  # what is filled over all texts was made before them
            derived |= filled if any(_read(given) & derived for given in one.args) else set()
    return derived


def _read(node: ast.AST) -> set[str]:
    """The variables and the attributes that ``node`` reads: ``text``, ``self.text``."""
    return names_read(node) | {dotted(one) for one in walk(node) if isinstance(one, ast.Attribute) and dotted(one)}


# -- several texts -----------------------------------------------------------------------------------------------------


def _in_loops(tree: ast.Module, builders: set[str]) -> Iterator[int]:
    """Vocabularies that a loop builds of the text of its pass, and reads it with."""
    for scope in scopes(tree):
        for loop in (one for one in statements(scope) if isinstance(one, (ast.For, ast.AsyncFor))):
            if not _are_apart(loop):
                nodes = body_of(loop)
                texts = names_stored(loop.target)
                for name, line in _built(nodes, texts, builders).items():
                    if _reads_with(nodes, name, texts) and not _kept_apart(nodes, texts):
                        yield line


def _are_apart(loop: Loop) -> bool:
    """Whether the passes of a loop are languages, columns or classes, or train a model each."""
    of = (loop,) if isinstance(loop, (ast.For, ast.AsyncFor)) else loop.generators
    names = {name for one in of for name in (*names_read(one.iter), *names_stored(one.target))}
    return any(APART.fullmatch(name) for name in names) or _makes_optimizer(walk(loop))


def _makes_optimizer(nodes: Iterable[ast.AST]) -> bool:
    return any(
        isinstance(one, ast.Assign)
        and any(isinstance(part, ast.Attribute) and part.attr == "parameters" for part in walk(one.value))
        for one in nodes
    )


def _reads_with(nodes: Sequence[ast.AST], name: str, texts: set[str]) -> bool:
    """Whether a text is read with the vocabulary ``name``: one statement beside the one that builds it has both."""
    derived = _derived(nodes, texts) - {name}
    return any(
        name in _read(one) and _read(one) & derived and not _gives_ids(getattr(one, "value", one))
        for one in nodes
        if isinstance(one, (ast.Assign, ast.Expr, ast.Return, ast.AugAssign)) and grown_by(one) != name
    )


def _kept_apart(nodes: Sequence[ast.AST], texts: set[str]) -> bool:
    """Whether what is made in a pass is kept under the name of the pass: ``columns[name] = ...``."""
    targets = [target for one in nodes if isinstance(one, ast.Assign) for target in one.targets]
    return any(isinstance(one, ast.Subscript) and names_read(one.slice) & texts for one in targets)


def _by_calls(tree: ast.Module) -> Iterator[int]:
    """Functions and classes that read a text with its own vocabulary, and are called for several texts."""
    readers: dict[str, int] = {}
    names = {method: holder.name for holder, method in _makings(tree)}
    handed_on = {
        target.attr
        for one in walk(tree)
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Attribute) and dotted(target.value) != "self"
    }
    for scope in scopes(tree):
        nodes = statements(scope)
        if isinstance(scope, ast.Module) or _makes_optimizer(nodes):
            continue
        for name, line in _built(nodes, argument_names(scope) - {"self"}).items():
            whole = "." in name and scope in names and name.rpartition(".")[2] not in handed_on
            if whole or _reads_with(nodes, name, argument_names(scope) - {"self"}):
                readers[names.get(scope, scope.name) if isinstance(scope, ast.FunctionDef) else scope.name] = line
    lists = {name for name in readers if name not in set(names.values())} & _called_for_each(tree)
    for name, line in readers.items():
        if name in lists or called_for_both_splits(tree, name):
            yield line


def _called_for_each(tree: ast.Module) -> set[str]:
    """The functions whose ids a list takes for each text, or that a loop calls for a text that is new in each pass."""
    found: set[str] = set()
    for one in walk(tree):
        if isinstance(one, (ast.ListComp, ast.GeneratorExp)) and isinstance(one.elt, ast.Call) and not _are_apart(one):
            if names_read(one.elt) & names_stored(one.generators[0].target):
                found.add(last_name(one.elt.func))
        elif isinstance(one, (ast.For, ast.AsyncFor)) and not _are_apart(one):
            nodes = body_of(one)
            renewed = names_stored(one.target) | {name for part in one.body for name in names_stored(part)}
            renewed |= _shuffled(nodes)
            found |= {
                last_name(call.func)
                for call in nodes
                if isinstance(call, ast.Call)
                and call.args
                and (names_read(call.args[0]) & renewed or isinstance(call.args[0], ast.Call))
            }
    return found


def _shuffled(nodes: Sequence[ast.AST]) -> set[str]:
    calls = [one for one in nodes if isinstance(one, ast.Call) and last_name(one.func) == "shuffle"]
    return {dotted(given) for one in calls for given in one.args[:1]}
