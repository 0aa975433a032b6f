"""Finds a straight-through estimator the wrong way round: ``q + (z - q).detach()``.

``z + (q - z).detach()`` is meant: the value of the discrete one, and the gradient of the continuous one. Asked for are
the whole form, a discrete side that the scope or a name shows, and another side that does not depend on it: the value
of ``f(x)`` with the gradient of ``x`` may be meant.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from steadytrain.capture.looks.signed_terms import STOPS, Given, Term, is_sum, terms
from steadytrain.capture.looks.syntax_trees import (
    Scope,
    dotted,
    given_values,
    last_name,
    names_stored,
    scopes,
    statements,
    stops_graph,
    walk,
    with_graph,
)

ROUNDS = frozenset(
    {"argmin", "argmax", "round", "round_", "sign", "sgn", "floor", "ceil", "trunc"}
    | {"one_hot", "bernoulli", "heaviside", "multinomial", "bucketize", "searchsorted", "scatter", "scatter_", "sign_"}
)
"""What gives discrete values; a one-hot row is ``zeros_like(x).scatter_(...)``."""

LOOKS_UP = re.compile(
    r"(?i)(\w+_)?(lookup|look_up|codebooks?|nearest|quanti[sz]e\w*|binari[sz]e\w*|discreti[sz]e\w*|embed_codes?|decode_ids?"
    r"|get_codebook_entry|get_codes?|harden|snap)"
)
EMBEDS = re.compile(
    r"(?i)(\w+_)?(embedding|embeddings|embed|emb|table|centroids|codes|codebook|prototypes|centers|weight)"
)
PASSES = frozenset(
    {"float", "to", "type_as", "view", "view_as", "reshape", "permute", "transpose", "contiguous"}
    | {"squeeze", "unsqueeze", "half", "type", "double", "flatten", "clone", "index_select", "gather"}
    | {"expand", "expand_as", "rearrange", "cuda", "detach", "clamp", "long"}
)
"""What hands its tensor on."""

NAMED = re.compile(
    r"(?i)(?!.*(pre_?q|unq|before|non_|input|err|loss|soft|cont|tanh|sigmoid|swish|_in$))"
    r"(\w+_)?(hard|quant|quantized|quantised|z_?q\d?|rounded|binari[sz]ed|discrete|one_?hot|snapped)(_\w+)?"
)
WEAK = re.compile(r"(?i)q|codes?|binary|bins?|z_?hat|zq|quant\w*|hard\w*|b")
"""Names that count in a function that says what it does."""

DEPTH_MAX = 8

SMOOTH = re.compile(r"(?i)enc|soft|sigmoid|tanh|proj|linear|conv|fc|net|mlp|gumbel|relu")
SAYS = re.compile(r"(?i)\w*(straight_?through|(^|_)ste(_|$)|\bste\b|vq|vector_?quant|quanti[sz]e|binari[sz]e)\w*")


def reversed_passes(tree: ast.Module) -> Iterator[int]:
    """The lines of such sums."""
    classes = {
        one: node.name
        for node in walk(tree)
        if isinstance(node, ast.ClassDef)
        for one in node.body
        if isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef))
    }
    for scope in scopes(tree):
        sums = [one for one in statements(scope) if isinstance(one, ast.expr) and is_sum(one)]
        if sums:
            named = "" if isinstance(scope, ast.Module) else f"{classes.get(scope, '')} {scope.name}"
            values = _Values(scope, says=SAYS.search(named) is not None)
            yield from sorted({one.lineno for one in sums if values.is_reversed(one)})


class _Values:
    """What a scope shows of its names."""

    def __init__(self, scope: Scope, *, says: bool) -> None:
        self._says = says
        nodes = statements(scope)
        with_a_graph = {id(one) for one in with_graph(scope)}
        self._given: dict[str, list[tuple[int, ast.expr, bool]]] = {}
        for node in nodes:
            live = id(node) in with_a_graph
            if isinstance(node, ast.Assign):
                for target, value in given_values(node):
                    for name in _names_of(target):
                        self._given.setdefault(name, []).append((node.lineno, value, live))
            if isinstance(node, ast.AugAssign):
                self._given.setdefault(dotted(node.target), []).append((node.lineno, node.value, live))
        decorators = [] if isinstance(scope, ast.Module) else scope.decorator_list
        self._is_without_graph = any(stops_graph(one) for one in decorators)
        once = {name: found[0] for name, found in self._given.items() if len(found) == 1}
        self._once = {
            name: Given(value, live)
            for name, (_, value, live) in once.items()
            if (not live or _has_cut(value)) and not _is_pair(nodes, name)
        }

    def is_reversed(self, node: ast.expr) -> bool:
        """Whether a sum gives the value of the continuous one, or its gradient with the other sign."""
        if self._is_without_graph:
            return False
        return self._is_wrong(list(terms(node, {})), node) or self._is_wrong(list(terms(node, self._once)), node)

    def _is_wrong(self, found: list[Term], node: ast.expr) -> bool:
        less = [one for one in found if one.sign < 0]
        if len(found) != 3 or len(less) != 1:
            return False
        more = [one for one in found if one.sign > 0]
        pair = [one for one in more if one.key == less[0].key and one.live != less[0].live]
        if len(pair) != 1:
            return False
        (rest,) = (one for one in more if one is not pair[0])
        return self._is_swapped(pair[0], rest, node) or self._is_negative(pair[0], rest, node)

    def _is_swapped(self, kept: Term, other: Term, node: ast.expr) -> bool:
        """``q + (z - q).detach()``: ``kept`` has the gradient, ``other`` the value."""
        if not kept.live or other.live:
            return False
        return self._is_discrete(kept, node) and not self._is_discrete(other, node) and not self._depends(other, kept)

    def _is_negative(self, soft: Term, hard: Term, node: ast.expr) -> bool:
        """``hard - soft + soft.detach()``."""
        return not soft.live and self._is_discrete(hard, node) and not self._is_discrete(soft, node)

    def _is_discrete(self, term: Term, node: ast.expr) -> bool:
        value = term.value
        name = dotted(value)
        last = name.rpartition(".")[2]
        given = self._before(name, node.lineno, node)
        if given is not None and not isinstance(value, ast.Call):
            if self._rounds(given, node.lineno):
                return True
            named = bool(NAMED.fullmatch(last))
            return (self._looks_up(given) and (named or self._says)) or (named and _is_of_a_module(given))
        if name:
            return bool(NAMED.fullmatch(last)) or (self._says and bool(WEAK.fullmatch(last)))
        return self._rounds(value, node.lineno)

    def _before(self, name: str, line: int, node: ast.expr | None = None) -> ast.expr | None:
        """What the last statement before ``line``, but for that of ``node``, gives to ``name``."""
        given = reversed(self._given.get(name, []))
        return next(
            (value for at, value, _ in given if at < line and not any(one is node for one in walk(value))), None
        )

    def _rounds(self, value: ast.expr, line: int, depth: int = 0) -> bool:
        """Whether ``value`` is discrete by the operations that make it."""
        if depth > DEPTH_MAX:
            return False
        if isinstance(value, ast.Compare):
            return not any(isinstance(one, (ast.In, ast.NotIn, ast.Is, ast.IsNot)) for one in value.ops)
        if isinstance(value, (ast.Name, ast.Attribute)):
            given = self._before(dotted(value), line)
            return given is not None and self._rounds(given, line, depth + 1)
        if isinstance(value, ast.UnaryOp):
            return self._rounds(value.operand, line, depth + 1)
        if isinstance(value, ast.Subscript):
            return self._rounds(value.slice, line, depth + 1) or self._rounds(value.value, line, depth + 1)
        if isinstance(value, ast.BinOp):
            return self._scaled(value, line, depth)
        if not isinstance(value, ast.Call):
            return False
        return self._called(value, line, depth)

    def _called(self, value: ast.Call, line: int, depth: int) -> bool:
        name = last_name(value.func)
        if name in ROUNDS or LOOKS_UP.fullmatch(name):
            return True
        if name == "where" and len(value.args) == 3:
            return all(not _reads_slope(one) for one in value.args[1:])
        if len(value.args) == 1 and not value.keywords and self._is_nearest(value.args[0], line):
            return True
        on = value.func.value if isinstance(value.func, ast.Attribute) else None
        if name in PASSES or name in ("embedding", "Embedding", "matmul", "mm", "einsum"):
            parts = [*([on] if on is not None else []), *value.args]
            return any(self._rounds(one, line, depth + 1) for one in parts)
        return bool(EMBEDS.fullmatch(name)) and any(self._rounds(one, line, depth + 1) for one in value.args)

    def _is_nearest(self, value: ast.expr, line: int) -> bool:
        """Whether ``value`` is the place of the least distance, by which a code is looked up."""
        given = self._before(dotted(value), line) if isinstance(value, (ast.Name, ast.Attribute)) else value
        while isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute) and given.func.attr in PASSES:
            given = given.func.value
        return isinstance(given, ast.Call) and last_name(given.func) == "argmin"

    def _scaled(self, value: ast.BinOp, line: int, depth: int) -> bool:
        """``torch.round(x * 4) / 4``, ``scale * w.sign()``, ``one_hot @ table``, ``2 * (x > 0) - 1``."""
        sides = (value.left, value.right)
        numbers = any(isinstance(one, ast.Constant) for one in sides)
        if isinstance(value.op, ast.MatMult) or numbers:
            return any(self._rounds(one, line, depth + 1) for one in sides)
        if isinstance(value.op, (ast.Mult, ast.Div)):
            return any(self._rounds(one, line, depth + 1) and not _has_comparison(one) for one in sides)
        return False

    def _looks_up(self, given: ast.expr) -> bool:
        """Whether a value comes of a call or an index of a table, as a code does."""
        if isinstance(given, ast.Subscript):
            return bool(EMBEDS.fullmatch(last_name(given.value)))
        while isinstance(given, ast.Call) and last_name(given.func) in PASSES and isinstance(given.func, ast.Attribute):
            given = given.func.value
        return isinstance(given, ast.Call) and bool(EMBEDS.fullmatch(last_name(given.func)))

    def _depends(self, term: Term, on: Term) -> bool:
        """Whether ``term`` is computed of ``on``, and ``on`` not of it."""
        return self._reaches(term.key, on.key) and not self._reaches(on.key, term.key)

    def _reaches(self, name: str, wanted: str) -> bool:
        seen: set[str] = set()
        ahead = [name]
        while ahead:
            one = ahead.pop()
            values = [value for _, value, _ in self._given.get(one, [])]
            if one not in self._given and one == name:
                values = [ast.parse(name, mode="eval").body]
            for read in {dotted(each) for value in values for each in walk(value) if isinstance(each, ast.expr)} - {""}:
                if read == wanted:
                    return True
                if read not in seen:
                    seen.add(read)
                    ahead.append(read)
        return False


def _names_of(target: ast.expr) -> Iterator[str]:
    for one in target.elts if isinstance(target, ast.Tuple) else [target]:
        if dotted(one):
            yield dotted(one)


def _is_pair(nodes: tuple[ast.AST, ...], name: str) -> bool:
    """Whether ``name`` is one of several that a statement assigns, or the variable of a loop."""
    for node in nodes:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(one, ast.Tuple) and name in map(dotted, one.elts) for one in targets):
            return True
        if isinstance(node, (ast.For, ast.comprehension)) and name in names_stored(node.target):
            return True
    return False


def _is_of_a_module(given: ast.expr) -> bool:
    """``self.book(z)`` and a part of it: a call that is no method of a tensor and no function of torch."""
    given = given.value if isinstance(given, ast.Subscript) else given
    return (
        isinstance(given, ast.Call)
        and dotted(given.func).startswith("self.")
        and not SMOOTH.search(last_name(given.func))
    )


def _has_cut(value: ast.expr) -> bool:
    """Whether a part of ``value`` has no gradient."""
    return any(
        (isinstance(one, ast.Attribute) and one.attr == "data")
        or (isinstance(one, ast.Call) and last_name(one.func) in STOPS)
        for one in walk(value)
    )


def _has_comparison(value: ast.expr) -> bool:
    return any(isinstance(one, ast.Compare) for one in walk(value))


def _reads_slope(value: ast.expr) -> bool:
    """Whether a side of ``torch.where`` is no number and no scale."""
    inner = value.operand if isinstance(value, ast.UnaryOp) else value
    if isinstance(inner, ast.Constant):
        return False
    if isinstance(inner, ast.Call):
        return last_name(inner.func) not in ("ones_like", "zeros_like", "tensor", "full_like")
    return not re.fullmatch(r"(?i)(\w+_)?(scale|alpha|step|level|low|high|lo|hi|mean)", last_name(inner))
