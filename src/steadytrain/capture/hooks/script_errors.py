"""Tells an exception of the script from one of steadytrain.

Python runs a signal handler between two instructions of whatever is running. So an exception of the script's handler (a
time limit, a preemption notice) may surface inside steadytrain. It belongs to the script and must reach it.
"""

from __future__ import annotations

import re
import sys
from types import CodeType, FrameType, TracebackType

from steadytrain.capture.incident.source_hashes import is_library

_OF_A_DEAD_GPU = re.compile(
    r"device-side assert|illegal memory access|illegal instruction|misaligned address|invalid program counter"
    r"|unspecified launch failure|hardware stack error|uncorrectable ECC error|launch timed out"
)

OWN_FOLDER = __file__.rpartition("/capture/")[0] + "/"


def is_of_script(error: BaseException) -> bool:
    """Whether the script raised ``error`` on its own while steadytrain was running: in a signal handler, or from
    another thread (``PyThreadState_SetAsyncExc``). False for an exception from script code that steadytrain called."""
    trace: TracebackType | None = error.__traceback__
    called_script = False
    while trace is not None:
        frame = trace.tb_frame
        if _is_signal_handler(frame):
            return True
        called_script = called_script or not _is_known(frame.f_code.co_filename)
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


def _is_signal_handler(frame: FrameType) -> bool:
    """Python calls a handler with the signal's number and the frame that it interrupted, which is its caller."""
    interrupted, code = frame.f_back, frame.f_code
    if interrupted is None or code.co_filename.startswith(OWN_FOLDER):
        return False
    given = [frame.f_locals.get(name) for name in _parameters(code)]
    held = [one for value in given for one in (value if type(value) is tuple else (value,))]
    return any(one is interrupted for one in held)


def _parameters(code: CodeType) -> tuple[str, ...]:
    has_rest = bool(code.co_flags & 0x04)  # CO_VARARGS: `def handler(*_)`
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + has_rest]


def _is_script_class(kind: type[BaseException]) -> bool:
    """Whether the script defines the class: steadytrain and the libraries that it calls never raise it themselves."""
    module = sys.modules.get(kind.__module__)
    if module is None:
        return False
    file = getattr(module, "__file__", None)
    return kind.__module__ == "__main__" or (isinstance(file, str) and not _is_known(file))


def _is_known(file: str) -> bool:
    return file.startswith("<frozen ") or is_library(file)
