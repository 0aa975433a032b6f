"""Whether code is typed into a notebook or a prompt, which no command can launch again."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Literal

Typed = Literal["notebook", "prompt"]
KERNELS = ("ipykernel_launcher.py", "colab_kernel_launcher.py")
"""Scripts that start the process behind a notebook: launched again, they would wait for cells that never come."""

NOTEBOOK_SUFFIX = ".ipynb"
_SESSION = "JPY_SESSION_NAME"
"""Set by Jupyter's server: the path of the notebook."""

_VSCODE = "__vsc_ipynb_file__"
"""A name that VS Code puts among those of the cells: the path of the notebook."""


def shell() -> Any:
    """IPython's shell, if the user types into one (a notebook, a prompt). None for a script that IPython runs."""
    found = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return found() if found is not None and not _is_script() else None


def typed_into() -> Typed | None:
    """What the running code was typed into; None for a script or a module."""
    running = shell()
    if _is_script() or (running is None and sys.argv[:1] == ["-c"]):
        return None
    return "notebook" if hasattr(running, "kernel") else "prompt"


def notebook_name() -> str:
    """The name of the notebook without its suffix, ``notebook`` if it is not known."""
    main = sys.modules.get("__main__")
    for path in (os.environ.get(_SESSION), getattr(main, _VSCODE, None)):
        if isinstance(path, str) and path.endswith(NOTEBOOK_SUFFIX):
            return Path(path).stem
    return "notebook"


def is_kernel(script: object) -> bool:
    """Whether a recorded script is the one that starts the process behind a notebook."""
    return isinstance(script, str) and Path(script).name in KERNELS


def _is_script() -> bool:
    return hasattr(sys.modules.get("__main__"), "__file__")
