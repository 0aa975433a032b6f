"""Which names of a scope hold tensors or arrays, as far as its source shows."""

from __future__ import annotations

import ast
import re

from steadytrain.capture.looks.syntax_trees import Scope, assignments, dotted, last_name, names_stored, statements

MADE = re.compile(
    r"torch\.(?!load|device|compile|save|set_|get_|is_|manual|no_grad|enable|inference|jit|Gen|dtype|cuda|backends)[a-z]\w*"
    r"|(F|functional|nn\.functional|torch\.nn\.functional)\.[a-z]\w*"
    r"|(np|numpy)\.(array|asarray|zeros|ones|empty|full|arange|linspace|concatenate|stack|where|clip|exp|log|sqrt|abs)(_like)?"
)
"""Functions that return a tensor or an array."""

METHODS = re.compile(
    r"softmax|log_softmax|masked_fill_?|unsqueeze|squeeze|detach|view|reshape|permute|transpose|contiguous|matmul|bmm"
    r"|flatten|softplus|sigmoid|tanh|relu|nan_to_num|clamp(_min|_max)?_?|scatter_|index_select|requires_grad_|abs|square"
)
"""Methods that return a tensor."""

FIELDS = frozenset({"data", "grad", "weight", "bias"})
STEPS = 3


class TensorNames:
    """The names of one scope; a name that is given anything else as well holds no tensor for certain."""

    def __init__(self, scope: Scope) -> None:
        nodes = statements(scope)
        self._known = _annotated(scope) | _of_parameters(nodes)
        self._carried = set(_carried(nodes))
        given = [(dotted(target), value) for target, value in assignments(nodes)]
        for _ in range(STEPS):
            self._known |= {name for name, value in given if name and self.is_tensor(value)}
        others = {name for name, value in given if name in self._known and not self._stays(name, value)}
        self._known -= others

    def is_tensor(self, value: ast.expr) -> bool:
        """Whether ``value`` is a tensor or an array by what the scope shows."""
        if isinstance(value, ast.Attribute) and value.attr in FIELDS:
            return value.attr != "data" or self.is_tensor(value.value) or last_name(value.value) in FIELDS
        if isinstance(value, (ast.Name, ast.Attribute)):
            return dotted(value) in self._known
        if isinstance(value, ast.Subscript):
            return self.is_tensor(value.value)
        if isinstance(value, ast.UnaryOp):
            return self.is_tensor(value.operand)
        if isinstance(value, ast.BinOp):
            product = isinstance(value.op, ast.MatMult)
            return product or self.is_tensor(value.left) or self.is_tensor(value.right)
        if not isinstance(value, ast.Call):
            return False
        return bool(MADE.fullmatch(dotted(value.func))) or (
            isinstance(value.func, ast.Attribute)
            and bool(METHODS.fullmatch(value.func.attr) or self.is_tensor(value.func.value))
        )

    def is_carried(self, value: ast.expr) -> bool:
        """Whether ``value`` is a state that a call takes and gives back: ``h = cell(x, h)``."""
        value = value.value if isinstance(value, ast.Subscript) else value
        return dotted(value) in self._carried

    def _stays(self, name: str, value: ast.expr) -> bool:
        """Whether ``name`` still holds a tensor after ``value`` is given to it."""
        return self.is_tensor(value) or (isinstance(value, ast.Call) and name in _read(value))


def _annotated(scope: Scope) -> set[str]:
    if isinstance(scope, ast.Module):
        return set()
    return {
        one.arg
        for one in (*scope.args.args, *scope.args.kwonlyargs)
        if one.annotation is not None and last_name(one.annotation) in ("Tensor", "ndarray", "Parameter")
    }


def _of_parameters(nodes: tuple[ast.AST, ...]) -> set[str]:
    """The variables of loops over ``model.parameters()``."""
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, (ast.For, ast.comprehension)) and isinstance(node.iter, ast.Call):
            name, target = last_name(node.iter.func), node.target
            if name == "parameters" and isinstance(target, ast.Name):
                found.add(target.id)
            elif name == "named_parameters" and isinstance(target, ast.Tuple):
                found |= names_stored(target.elts[-1])
    return found


def _carried(nodes: tuple[ast.AST, ...]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            targets = [part for one in node.targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])]
            found |= {dotted(one) for one in targets} & _read(node.value)
    return found - {""}


def _read(call: ast.Call) -> set[str]:
    """The names that a call is given, with attributes."""
    return {dotted(one) for one in (*call.args, *(each.value for each in call.keywords))} - {""}
