"""Recipes for a line that a symptom names, or for the one call that its mistake is in: what a reviewer would write."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from steadytrain.diagnosis.patches.edits import (
    CannotPatchError,
    Edit,
    Source,
    bare,
    calls,
    keyword,
    name_of,
    with_argument,
)
from steadytrain.diagnosis.patches.wound import Wound

UNIFORM = {"rand_like": "randn_like", "rand": "randn"}
ROWS_FIRST = (
    *("LSTM", "GRU", "RNN", "MultiheadAttention", "Transformer"),
    *("TransformerEncoderLayer", "TransformerDecoderLayer"),
)
LIBRARIES = ("torch", "np", "numpy", "F", "functional", "nn.functional", "torch.nn.functional")
OTHER_MODE = {"min": "max", "max": "min"}


def _named(wound: Wound, symptom: str) -> int:
    """The line that ``symptom`` names in this file."""
    line = wound.named.get(symptom)
    if line is None:
        raise CannotPatchError(f"the symptom {symptom} names no line of this script")
    return line


def _seen(wound: Wound, symptom: str) -> None:
    if symptom not in wound.symptoms:
        raise CannotPatchError(f"{symptom} was not seen")


def detached(source: Source, wound: Wound) -> Iterator[Edit]:
    """``detach()`` around the value that the named line assigns."""
    line = _named(wound, "live-target")
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.Assign) and node.lineno == line]
    if len(found) != 1 or len(found[0].targets) != 1 or not isinstance(found[0].targets[0], ast.Name):
        raise CannotPatchError(f"line {line} does not assign one variable")
    yield source.replaced(found[0].value, f"{bare(source, found[0].value)}.detach()")


def assigned_back(source: Source, wound: Wound) -> Iterator[Edit]:
    """``x[index] = `` before the statement of the named line, which changes a copy in place."""
    line = wound.named.get("discarded-changes") or _named(wound, "kept-residual")
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.Expr) and node.lineno == line]
    value = found[0].value if len(found) == 1 else None
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        value = value.func.value
    if not isinstance(value, ast.Subscript):
        raise CannotPatchError(f"line {line} is not one change in place of an indexed part")
    yield source.replaced(found[0], f"{source.text(value)} = {source.text(found[0])}")


def taken(source: Source, wound: Wound) -> Iterator[Edit]:
    """``x = `` before the named line, which drops a result: ``x`` has the method, or is the first argument."""
    line = _named(wound, "dropped-result")
    found = [node for node in ast.walk(source.tree) if isinstance(node, ast.Expr) and node.lineno == line]
    call = found[0].value if len(found) == 1 else None
    if not isinstance(call, ast.Call):
        raise CannotPatchError(f"line {line} is not one call")
    method = call.func.value if isinstance(call.func, ast.Attribute) else None
    first = method is None or source.text(method) in LIBRARIES or name_of(call) in ("permutation", "permuted")
    target = call.args[0] if first and call.args else method
    if not isinstance(target, ast.Name | ast.Attribute | ast.Subscript):
        raise CannotPatchError(f"line {line} changes no variable by its name")
    loops = (node.target for node in ast.walk(source.tree) if isinstance(node, ast.For))
    if any(isinstance(one, ast.Name) and one.id == source.text(target) for loop in loops for one in ast.walk(loop)):
        raise CannotPatchError(f"line {line} means the variable of a loop: what it is taken from would not change")
    yield source.replaced(found[0], f"{source.text(target)} = {source.text(found[0])}")


def turned_around(source: Source, wound: Wound) -> Iterator[Edit]:
    """``z + (q - z).detach()`` for ``q + (z - q).detach()`` on the named line."""
    line = _named(wound, "reversed-straight-through")
    found = [
        (node, mended)
        for node in ast.walk(source.tree)
        if isinstance(node, ast.BinOp) and node.lineno == line and (mended := _turned(source, node))
    ]
    if len(found) != 1:
        raise CannotPatchError(f"line {line} has {len(found) or 'no'} sums of the form q + (z - q).detach(), not one")
    yield source.replaced(*found[0])


def _turned(source: Source, node: ast.BinOp) -> str:
    """The sum the right way round; "" of another form."""
    if not isinstance(node.op, ast.Add):
        return ""
    for kept, other in ((node.left, node.right), (node.right, node.left)):
        cut = _detached(other)
        if isinstance(cut, ast.BinOp) and isinstance(cut.op, ast.Sub) and ast.dump(cut.right) == ast.dump(kept):
            smooth = bare(source, cut.left)
            return f"{smooth} + ({bare(source, kept)} - {smooth}).detach()"
        difference = isinstance(kept, ast.BinOp) and isinstance(kept.op, ast.Sub)
        if cut is not None and difference and ast.dump(kept.right) == ast.dump(cut):  # type: ignore[attr-defined]
            smooth = bare(source, cut)
            return f"{bare(source, kept.left)} - {smooth}.detach() + {smooth}"  # type: ignore[attr-defined]
    return ""


def _detached(node: ast.expr) -> ast.expr | None:
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "detach"
    return node.func.value if is_call else None  # type: ignore[attr-defined]


def restored_random_state(source: Source, wound: Wound) -> Iterator[Edit]:
    """``True`` for the option of a checkpoint that the named line switches off."""
    line, option = _named(wound, "unlike-recomputation"), "preserve_rng_state"
    given: list[ast.expr] = []
    for node in ast.walk(source.tree):
        if isinstance(node, ast.keyword) and node.arg == option:
            given.append(node.value)
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            given += [value for key, value in pairs if isinstance(key, ast.Constant) and key.value == option]
    found = [one for one in given if one.lineno == line]
    if len(found) != 1:
        raise CannotPatchError(f"line {line} gives {option} {len(found) or 'no'} times, not once")
    yield source.replaced(found[0], "True")


def with_graph(source: Source, wound: Wound) -> Iterator[Edit]:
    """``create_graph=True`` for the derivative of the named line."""
    line = _named(wound, "constant-penalty")
    found = [
        call
        for call in calls(source, lambda one: name_of(one) == "grad")
        if call.lineno <= line <= (call.end_lineno or line)
    ]
    if len(found) != 1:
        raise CannotPatchError(f"line {line} has {len(found) or 'no'} calls of autograd.grad, not one")
    given = keyword(found[0], "create_graph")
    if given is None and len(found[0].args) > 4:
        raise CannotPatchError(f"line {line} gives create_graph by its place")
    yield source.replaced(given, "True") if given is not None else with_argument(source, found[0], "create_graph=True")


def reparametrized(source: Source, wound: Wound) -> Iterator[Edit]:
    """``rsample()`` for the draw of the named line."""
    line = _named(wound, "cut-sample")
    found = [call for call in calls(source, lambda one: name_of(one) == "sample") if call.func.lineno <= line]
    here = [call for call in found if line <= (call.end_lineno or call.lineno)]
    if len(here) != 1 or not isinstance(here[0].func, ast.Attribute):
        raise CannotPatchError(f"line {line} has {len(here) or 'no'} calls of sample(), not one")
    yield source.replaced(here[0].func, f"{source.text(here[0].func.value)}.rsample")


def normal_noise(source: Source, wound: Wound) -> Iterator[Edit]:
    """``randn_like`` for the only draw of uniform noise, or for that of the named line."""
    found = calls(source, lambda one: name_of(one) in UNIFORM and isinstance(one.func, ast.Attribute | ast.Name))
    line = wound.named.get("uniform-code")
    here = [call for call in found if call.lineno == line]
    found = here or [call for call in found if name_of(call) == "rand_like"] or found
    if len(found) != 1:
        raise CannotPatchError(f"the script draws uniform noise in {len(found) or 'no'} places, not one")
    function = found[0].func
    old = source.text(function)
    yield source.replaced(function, old.removesuffix(name_of(found[0])) + UNIFORM[name_of(found[0])])


def other_mode(source: Source, wound: Wound) -> Iterator[Edit]:
    """The other mode of the only ``ReduceLROnPlateau``."""
    _seen(wound, "opposite-metric")
    found = calls(source, lambda one: name_of(one) == "ReduceLROnPlateau")
    if len(found) != 1:
        raise CannotPatchError(f"the script makes {len(found) or 'no'} ReduceLROnPlateau, not one")
    given = keyword(found[0], "mode") or (found[0].args[1] if len(found[0].args) > 1 else None)
    mode = given.value if isinstance(given, ast.Constant) else "min" if given is None else None
    if not isinstance(mode, str) or mode not in OTHER_MODE:
        raise CannotPatchError("the mode of ReduceLROnPlateau is not written in the script")
    new = f'"{OTHER_MODE[mode]}"'
    yield source.replaced(given, new) if given is not None else with_argument(source, found[0], f"mode={new}")


def rows_first(source: Source, wound: Wound) -> Iterator[Edit]:
    """``batch_first=True`` for each recurrent layer and attention of the script."""
    _seen(wound, "mixed-rows")
    found = [
        call
        for call in calls(source, lambda one: name_of(one) in ROWS_FIRST and bool(one.args))
        if not any(one.arg is None for one in call.keywords)
    ]
    if not found or any(keyword(call, "batch_first") is not None for call in found):
        raise CannotPatchError("its layers say where the rows are, or it makes none by their names")
    for call in found:
        yield with_argument(source, call, "batch_first=True")
