"""Placed on a child's path by ``steadytrain run``: attaches to the child if it trains. Placed there by a command that
launches a script again: puts the child into the script's sandbox. Then runs the ``sitecustomize`` that it replaces.

Python imports ``sitecustomize`` at the start of every process, so this file stays small and imports nothing heavy until
torch itself is imported.
"""

import importlib.machinery
import importlib.util
import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


def _run_the_one_behind_us() -> None:
    path = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _not_watched(error: Exception) -> None:
    print(f"steadytrain: warning: this child process is not watched ({error!r})", file=sys.stderr)


def _arm() -> None:
    from steadytrain.capture.hooks.import_hook import after_import
    from steadytrain.core.switch import is_off

    if is_off() and not os.environ.get("STEADYTRAIN_SANDBOX"):  # a script may switch its child off
        return

    def attach() -> None:
        try:
            from steadytrain.attach import arm_child

            arm_child()
        except Exception as error:
            _not_watched(error)

    after_import("torch", attach)


if os.environ.get("STEADYTRAIN_SANDBOX"):
    try:
        from steadytrain.replay.file_sandbox import protect_child

        protect_child()
    except Exception as error:  # a process that could write to the user's files must not run
        print(f"steadytrain: this process of a relaunched script is not started ({error!r})", file=sys.stderr)
        os._exit(126)
if os.environ.get("STEADYTRAIN_ATTACH"):
    try:
        _arm()
    except Exception as error:
        _not_watched(error)
_run_the_one_behind_us()
