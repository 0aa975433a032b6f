"""Tells an exception of the script from one of steadytrain.

Python runs a signal handler between two instructions of whatever is running. So an exception of the script's handler (a
time limit, a preemption notice) may surface inside steadytrain. It belongs to the script and must reach it.
"""

from __future__ import annotations

import re
import sys
from types import TracebackType

from steadytrain.capture.incident.source_hashes import is_library
from steadytrain.core.own_errors import is_of_signal_handler

_OF_A_DEAD_GPU = re.compile(
    r"device-side assert|illegal memory access|illegal instruction|misaligned address|invalid program counter"
    r"|unspecified launch failure|hardware stack error|uncorrectable ECC error|launch timed out"
)


def is_of_script(error: BaseException) -> bool:
    """Whether the script raised ``error`` on its own while steadytrain was running: in a signal handler, or from
    another thread (``PyThreadState_SetAsyncExc``). False for an exception from script code that steadytrain called."""
    if is_of_signal_handler(error):
        return True
    trace: TracebackType | None = error.__traceback__
    called_script = False
    while trace is not None:
        called_script = called_script or not _is_known(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    return not called_script and _is_script_class(type(error))


def is_of_the_gpu(error: BaseException) -> bool:
    """Whether a kernel that was started earlier has failed. CUDA reports that at whatever call is next, also ours.

    No tensor of that device can be read any more, and every further call of the script raises the same error.
    """
    if not isinstance(error, RuntimeError):
        return False
    try:
        return _OF_A_DEAD_GPU.search(str(error)) is not None
    except Exception:  # its own text may fail
        return False


def _is_script_class(kind: type[BaseException]) -> bool:
    """Whether the script defines the class: steadytrain and the libraries that it calls never raise it themselves."""
    module = sys.modules.get(kind.__module__)
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" or (isinstance(file, str) and not _is_known(file))


def _is_known(file: str) -> bool:
    return file.startswith("<frozen ") or is_library(file)
