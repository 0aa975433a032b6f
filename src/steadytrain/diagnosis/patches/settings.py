"""Recipes for numbers: of the optimizer, of its schedule, and of the data loader."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping

from steadytrain.diagnosis.patches.edits import (
    CannotPatchError,
    Edit,
    Source,
    assigned,
    bare,
    calls,
    keyword,
    name_of,
    number,
    only_optimizer,
    optimizers,
    with_argument,
)
from steadytrain.diagnosis.patches.wound import Maker, Wound

EPSILON = "1e-08"
MOMENTUM = "0.9"


PEAKS = ("OneCycleLR", "CyclicLR")
DEFAULT_RATE = {"Adam": "0.001", "AdamW": "0.001"}
BETAS = ("Adam", "AdamW", "NAdam", "RAdam", "Adamax", "SparseAdam")
BETA = "0.9"


def option(name: str, value: Callable[[float], str | None]) -> Maker:
    """Changes the number of an option of the only optimizer."""

    def maker(source: Source, wound: Wound) -> Iterator[Edit]:
        optimizer, made = only_optimizer(source)
        node = number_of(source, keyword(made, name))
        old = number(node)
        if node is None or old is None or (new := value(old)) is None:
            raise CannotPatchError(f"{name} of {optimizer} is no number in the script that this would change")
        yield source.replaced(node, new)

    return maker


def number_of(source: Source, node: ast.expr | None) -> ast.expr | None:
    """The number that a name is assigned, if it is assigned once; else ``node``."""
    if isinstance(node, ast.Name):
        values = assigned(source, node.id)
        if len(values) == 1 and number(values[0]) is not None:
            return values[0]
    return node


def rate(factor: float) -> Maker:
    """Multiplies the learning rate wherever the script sets it: in the optimizer's call, as ``max_lr`` of a schedule,
    and where the loop writes it into the groups."""

    def maker(source: Source, wound: Wound) -> Iterator[Edit]:
        if wound.jump is not None and factor < 1:
            raise CannotPatchError("the rate before the jump was no fault")
        optimizer, made = only_optimizer(source)
        own = keyword(made, "lr") or (made.args[1] if len(made.args) > 1 else None)
        several = len(list(optimizers(source))) > 1
        written = [node for node in written_rates(source) if not several or is_of(source, node, optimizer)]
        peaks = [
            node
            for call in calls(source, lambda one: name_of(one) in PEAKS)
            if (node := keyword(call, "max_lr")) is not None
            and (not several or (call.args and ast.unparse(call.args[0]) == optimizer))
        ]
        if own is None and not written and not peaks:
            if name_of(made) not in DEFAULT_RATE or any(one.arg is None for one in made.keywords):
                raise CannotPatchError(f"the learning rate of {optimizer} is not written in the script")
            yield with_argument(source, made, f"lr={float(DEFAULT_RATE[name_of(made)]) * factor:.3g}")
            return
        shared: dict[str, ast.expr] = {}
        edited: list[ast.expr] = []
        for node in [one for one in (own, *peaks, *written) if one is not None]:
            if shared and node in written and _follows(source, node, shared):
                continue
            target = number_of(source, node)
            assert target is not None
            if target is not node and isinstance(node, ast.Name):
                shared[node.id] = node
            if target not in edited:
                edited.append(target)
                yield source.replaced(target, _scaled(source, target, factor))

    return maker


def written_rates(source: Source) -> list[ast.expr]:
    """What the script writes into ``group["lr"]``, apart from multiples of what is there."""
    return [
        node.value
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Assign)
        and any(is_rate(target) for target in node.targets)
        and not any(is_rate(part) for part in ast.walk(node.value))
    ]


def is_of(source: Source, node: ast.AST, optimizer: str) -> bool:
    """Whether a written rate is that of a group of ``optimizer``: its loop or its target names it."""
    groups, above = f"{optimizer}.param_groups", source.parents.get(node)
    while above is not None:
        if isinstance(above, ast.For) and ast.unparse(above.iter) == groups:
            return True
        if isinstance(above, ast.Assign) and any(ast.unparse(one).startswith(groups) for one in above.targets):
            return True
        above = source.parents.get(above)
    return False


def is_rate(node: ast.AST) -> bool:
    return isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == "lr"


def _follows(source: Source, node: ast.expr, shared: Mapping[str, ast.expr]) -> bool:
    """Whether a written rate is computed from a name whose number is changed already.

    Raises:
        CannotPatchError: that cannot be told, because the rate comes in as an argument.
    """
    functions = {one.name: one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef)}
    seen: set[str] = set()
    waiting: list[ast.AST] = [node]
    while waiting:
        for part in ast.walk(waiting.pop()):
            if not isinstance(part, ast.Name) or part.id in seen:
                continue
            seen.add(part.id)
            waiting += assigned(source, part.id)
            if part.id in functions:
                waiting.append(functions[part.id])
    if seen & set(shared):
        return True
    inputs = {one.arg for one in ast.walk(source.tree) if isinstance(one, ast.arg)}
    if seen & inputs:
        raise CannotPatchError(f"line {node.lineno}: the rate that is written there comes from elsewhere")
    return False


def _scaled(source: Source, node: ast.expr, factor: float) -> str:
    old = number(node)
    if old is not None:
        if not old > 0:
            raise CannotPatchError(f"line {node.lineno}: the learning rate is {old:g}")
        return f"{old * factor:.3g}"
    return f"{bare(source, node)} * {factor:g}" if factor >= 1 else f"{bare(source, node)} / {1 / factor:g}"


def lower_decay(source: Source, wound: Wound) -> Iterator[Edit]:
    """A third of the weight decay, wherever it is given to the optimizer or one of its groups."""
    _, made = only_optimizer(source)
    found = [keyword(made, "weight_decay")]
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Dict):
            found += [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "weight_decay" and number(value) != 0
            ]
    targets = {number_of(source, one) for one in found if one is not None} - {None}
    if not targets:
        raise CannotPatchError("no weight decay is written in the script")
    for target in targets:
        assert target is not None
        old = number(target)
        new = f"{old / 3:.3g}" if old is not None else f"{bare(source, target)} / 3"
        yield source.replaced(target, new)


def usual_momentum(source: Source, wound: Wound) -> Iterator[Edit]:
    """A momentum of 0.9, or a first beta of 0.9."""
    optimizer, made = only_optimizer(source)
    pair = keyword(made, "betas")
    is_pair = isinstance(pair, ast.Tuple | ast.List) and len(pair.elts) == 2
    node = number_of(source, pair.elts[0] if is_pair else keyword(made, "momentum"))  # type: ignore[union-attr]
    old = number(node)
    if node is None or old is None or old <= float(MOMENTUM):
        raise CannotPatchError(f"the momentum of {optimizer} is no number above {MOMENTUM} in the script")
    yield source.replaced(node, MOMENTUM)


def shorter_memory(source: Source, wound: Wound) -> Iterator[Edit]:
    """A second beta of 0.9."""
    optimizer, made = only_optimizer(source)
    pair = keyword(made, "betas")
    if pair is None and name_of(made) in BETAS and not any(one.arg is None for one in made.keywords):
        yield with_argument(source, made, f"betas=(0.9, {BETA})")
    elif isinstance(pair, ast.Tuple | ast.List) and len(pair.elts) == 2 and number(pair.elts[1]) != float(BETA):
        yield source.replaced(pair.elts[1], BETA)
    else:
        raise CannotPatchError(f"the betas of {optimizer} are not written in the script")


def shuffled(source: Source, wound: Wound) -> Iterator[Edit]:
    found = [
        call
        for call in calls(source, lambda one: name_of(one) == "DataLoader" and bool(one.args))
        if not any(one.arg in ("sampler", "batch_sampler", None) for one in call.keywords)
        and not (isinstance(now := keyword(call, "shuffle"), ast.Constant) and now.value is True)
    ]
    if len(found) != 1:
        raise CannotPatchError(f"the script makes {len(found) or 'no'} loaders without shuffle=True, not one")
    given = keyword(found[0], "shuffle")
    yield source.replaced(given, "True") if given is not None else with_argument(source, found[0], "shuffle=True")
