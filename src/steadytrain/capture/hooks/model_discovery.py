"""Finds the model behind an optimizer's parameters, and the names of the parameters.

One scan of the garbage collector's objects finds the modules when an optimizer is created (about 50 ms in a large
process). So a script need not pass its model. The scan uses ``type(object)``, never ``isinstance``, which would run
``__class__`` properties of lazy objects.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadytrain.core.living_objects import living
from steadytrain.core.torch_private import BUFFERS, CHILDREN, PARAMETERS, WRAPPER_PREFIXES
from steadytrain.storage.redaction import redact_text


@dataclass(frozen=True)
class Model:
    """The root modules that hold an optimizer's parameters, and the parameters' names.

    ``names`` maps ``id(parameter)`` to its name, the path inside its root. With several roots the root's class comes
    first (and its number among roots of that class). A parameter that no module holds is ``parameter.<n>``;
    ``nameless`` counts these. Roots are in the order of their first parameter in the optimizer, which is the same in
    every process.
    """

    roots: tuple[nn.Module, ...]
    names: dict[int, str]
    nameless: int


def optimizer_parameters(optimizers: Iterable[torch.optim.Optimizer]) -> list[Tensor]:
    """The parameters of all groups in order, without duplicates."""
    found = {
        id(parameter): parameter
        for optimizer in optimizers
        for group in optimizer.param_groups
        for parameter in group["params"]
        if isinstance(parameter, Tensor)
    }
    return list(found.values())


def living_modules() -> list[nn.Module]:
    """The modules of the process, without those whose ``__init__`` has not run: these have no dictionaries yet."""
    return [one for one in living(nn.Module) if is_made(one)]


def living_optimizers() -> list[torch.optim.Optimizer]:
    """Those of the process; one without groups is left out: its ``__init__`` raised."""
    return [one for one in living(torch.optim.Optimizer) if getattr(one, "param_groups", None) is not None]


def is_made(module: nn.Module) -> bool:
    """Whether its ``__init__`` has run: it has its dictionaries."""
    return {PARAMETERS.attribute, BUFFERS.attribute, CHILDREN.attribute} <= vars(module).keys()


def find_model(parameters: Sequence[Tensor]) -> Model:
    """Search the process for the modules that hold ``parameters``."""
    wanted = {id(parameter) for parameter in parameters}
    modules = living_modules()
    children = {id(child) for module in modules for child in _children(module)}
    tops = [module for module in modules if id(module) not in children]
    roots = [module for module in tops if any(id(parameter) in wanted for parameter in _parameters(module))]
    if not roots:
        # Every candidate is a child of another one (a cycle of modules, for instance): take the holders themselves.
        roots = [m for m in modules if any(id(p) in wanted for p in PARAMETERS.of(m).values() if p is not None)]
    places = {id(parameter): place for place, parameter in reversed(list(enumerate(parameters)))}
    roots.sort(key=lambda root: min(places.get(id(parameter), len(places)) for parameter in _parameters(root)))
    return name_parameters(roots, parameters)


def name_parameters(roots: Sequence[nn.Module], parameters: Sequence[Tensor]) -> Model:
    """Name ``parameters`` by their path in ``roots``."""
    names: dict[int, str] = {}
    several = len(roots) > 1
    seen: Counter[str] = Counter()
    for root in roots:
        kind = type(root).__name__
        seen[kind] += 1
        lead = "" if not several else f"{kind}." if seen[kind] == 1 else f"{kind}{seen[kind]}."
        for path, module in root.named_modules():  # each module once, so that a cycle of modules ends
            for name, parameter in PARAMETERS.of(module).items():
                if parameter is not None:
                    names.setdefault(id(parameter), lead + plain_name(f"{path}.{name}" if path else name))
    nameless = 0
    for position, tensor in enumerate(parameters):
        if id(tensor) not in names:
            nameless += 1
            names[id(tensor)] = f"parameter.{position}"
    wanted = {id(parameter) for parameter in parameters}
    return Model(tuple(roots), {key: name for key, name in names.items() if key in wanted}, nameless)


def plain_name(name: str) -> str:
    """``name`` without the parts that wrappers (compile, data parallel, checkpointing) add to it.

    What looks like a secret in it is redacted here already, so that the names of a bundle are those of the script that
    is launched from it.
    """
    for prefix in WRAPPER_PREFIXES:
        while name.startswith(prefix):
            name = name[len(prefix) :]
        name = name.replace("." + prefix, ".")
    return redact_text(name)


def module_names(roots: Iterable[nn.Module]) -> dict[nn.Module, str]:
    """Dotted path of every module under ``roots``; the root itself is ''."""
    names: dict[nn.Module, str] = {}
    for root in roots:
        for name, module in root.named_modules():
            names.setdefault(module, plain_name(name + ".").rstrip("."))
    return names


def _children(module: nn.Module) -> list[nn.Module]:
    # A module whose __init__ has not run yet has no _modules; it must not break the scan.
    modules = module.__dict__.get(CHILDREN.attribute) or {}
    return [child for child in modules.values() if child is not None]


def _parameters(module: nn.Module) -> list[Tensor]:
    try:
        return list(module.parameters())
    except (AttributeError, RuntimeError):
        return []


def named_places(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Each module under each of its names, in order. A path enters no module twice.

    ``named_modules(remove_duplicate=False)`` does not end if modules hold each other.
    """

    def walk(module: nn.Module, path: str, above: frozenset[int]) -> Iterator[tuple[str, nn.Module]]:
        yield path, module
        here = above | {id(module)}
        for name, child in CHILDREN.of(module).items():
            if child is not None and id(child) not in here:
                yield from walk(child, f"{path}.{name}" if path else name, here)

    return walk(root, "", frozenset())


def named_tensors(root: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Parameters, then buffers, each under each of its names."""
    places = list(named_places(root))
    for held in (PARAMETERS, BUFFERS):
        for path, module in places:
            for name, tensor in held.of(module).items():
                if tensor is not None:
                    yield f"{path}.{name}" if path else name, tensor
