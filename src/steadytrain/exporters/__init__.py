"""What steadytrain saw, in the tools that people have already: one file a tool, and the machinery that they share.

| file | what it is |
|---|---|
| ``tensorboard``, ``wandb``, ``mlflow`` | one exporter each; the only files that import the tool |
| ``exporter`` | the contract, and the values that an exporter is handed |
| ``values`` | which values are sent, under which names, how often |
| ``outlet`` | the queues and the thread between the training thread and one exporter |
| ``child`` | an exporter in a process of its own, for a run that is ours |
| ``active`` | finds a run of these tools that the script has begun itself |
| ``exports`` | all of it together, as the sink that capture knows |

Here are only the names: importing this package imports no tool.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from steadytrain.core.errors import UsageError

TOOLS: tuple[str, ...] = ("tensorboard", "wandb", "mlflow")
AUTO = "auto"
NONE = "none"
TO_DEFAULT: tuple[str, ...] = (AUTO,)
"""By default an active run of the script's own is joined, and nothing else is begun."""


def parse_to(text: str) -> tuple[str, ...]:
    """The names in ``--to a,b``.

    Raises:
        UsageError: as :func:`check_to`.
    """
    return check_to([name.strip() for name in text.split(",")])


def check_to(names: Sequence[str]) -> tuple[str, ...]:
    """``names`` without repetitions, if all of them can be used here; nothing is imported for it.

    Raises:
        UsageError: an unknown name, ``none`` beside another, or a tool that is not installed.
    """
    if isinstance(names, str):
        names = names.split(",")
    for name in names:
        if name not in (*TOOLS, AUTO, NONE):
            raise UsageError(f"{name!r}: no such tool that a run can go to; one of {', '.join((*TOOLS, AUTO, NONE))}")
        if name in TOOLS and not _is_installed(name):
            raise UsageError(f"{name!r}: not installed here; pip install 'steadytrain[{name}]'")
    if NONE in names and len(set(names)) > 1:
        raise UsageError(f"{','.join(names)!r}: none stands alone")
    return tuple(dict.fromkeys(names))


def _is_installed(tool: str) -> bool:
    try:
        spec = importlib.util.find_spec(tool)
    except (ImportError, ValueError):
        return False
    return spec is not None and spec.origin is not None  # a plain folder of that name (wandb/, with its runs) is none
