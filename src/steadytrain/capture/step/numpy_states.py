"""Reads NumPy's global random state, which takes 40 microseconds, only if it may have changed.

The words of the generator lie in memory at an address that NumPy gives out, and comparing them takes less than one. The
words do not show everything: of each pair of Gaussian numbers the second waits beside them. A script that was ever seen
with one waiting is read in full every time.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

_KEY_BYTES, _POSITION_BYTES = 4 * 624, 4
_Words = ctypes.c_char * (_KEY_BYTES + _POSITION_BYTES)


class NumpyStates:
    """The global state as ``numpy.random.get_state(legacy=False)`` returns it; the same object while it is the same.

    Nobody may change a state that was returned. Only one thread uses this object.
    """

    def __init__(self) -> None:
        self._generator: Any = None
        self._memory: Any = None
        self._words = b""
        self._last: Any = None
        self._pairs = False

    def take(self) -> Any:
        """The state, None if the process has not imported ``numpy.random``."""
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is None:
            return None
        # ``get_bit_generator`` is new in NumPy 1.24.
        generator = None if self._pairs else getattr(numpy_random, "get_bit_generator", lambda: None)()
        if self._last is not None and generator is self._generator and self._memory.raw == self._words:
            return self._last
        state = numpy_random.get_state(legacy=False)
        self._keep(generator, state)
        return state

    def forget(self) -> None:
        """The state was set."""
        self._last = None

    def _keep(self, generator: Any, state: Any) -> None:
        self._last = None
        if generator is None or state["bit_generator"] != "MT19937":
            return
        if state["has_gauss"]:
            self._pairs = True
            return
        if generator is not self._generator:
            self._generator, self._memory = generator, _Words.from_address(generator.ctypes.state_address)
        self._words = self._memory.raw
        position = int.from_bytes(self._words[_KEY_BYTES:], sys.byteorder)
        if self._words[:_KEY_BYTES] == state["state"]["key"].tobytes() and position == state["state"]["pos"]:
            self._last = state
