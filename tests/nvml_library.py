"""NVIDIA's management library as Python functions under their C names, for the real binding ``pynvml`` to call.

Each function writes through the pointers it is given and returns a status, as the library's documentation says. What a
board does not name among its ``answers`` it does not support.
"""

from __future__ import annotations

import ctypes
import threading
from dataclasses import dataclass, field
from typing import Any

import pynvml
import pytest

SUCCESS, NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, DRIVER_NOT_LOADED, TIMEOUT, GPU_IS_LOST = 0, 3, 4, 6, 9, 10, 15
NOT_AVAILABLE = (1 << 64) - 1


@dataclass
class FakeBoard:
    """A GPU, or with ``parent`` a MIG instance of one. ``answers`` is what it tells, by the name of the C function."""

    uuid: str
    bus_id: str = "00000000:65:00.0"
    answers: dict[str, Any] = field(default_factory=dict)
    parent: FakeBoard | None = None
    xids: list[int] = field(default_factory=list)
    gives_events: bool = True
    status: int = NOT_SUPPORTED


def whole_board(**changes: Any) -> FakeBoard:
    """One that answers everything, with numbers that are all different."""
    answers = {
        "nvmlDeviceGetName": "NVIDIA H200",
        "nvmlDeviceGetSerial": "1652922012345",
        "nvmlDeviceGetMemoryInfo": (150_000_000_000, 100_000_000_000),
        "nvmlDeviceGetUtilizationRates": (97, 41),
        "nvmlDeviceGetTemperatureV": 61,
        "nvmlDeviceGetPowerUsage": 650_500,
        "nvmlDeviceGetEnforcedPowerLimit": 700_000,
        "nvmlDeviceGetClockInfo": {1: 1980, 2: 3201},
        "nvmlDeviceGetCurrentClocksEventReasons": 0x04 | 0x01,
        "nvmlDeviceGetTotalEccErrors": {(0, 0): 3, (1, 0): 0, (0, 1): 12, (1, 1): 1},
        "nvmlDeviceGetRemappedRows": (2, 1, 1, 0),
        "nvmlDeviceGetPcieReplayCounter": 5,
        "nvmlDeviceGetEccMode": (1, 1),
        "nvmlDeviceGetMigMode": (0, 0),
        "nvmlDeviceGetFieldValues": {82: 70, 38: 1, 45: 2, 52: 3, 59: 4},
    }
    uuid = changes.pop("uuid", "GPU-1111")
    return FakeBoard(uuid=uuid, answers={**answers, **changes.pop("answers", {})}, **changes)


class FakeLibrary:
    """The shared library. ``missing`` are functions that this version does not have."""

    def __init__(self, *boards: FakeBoard, missing: tuple[str, ...] = (), init_status: int = SUCCESS) -> None:
        self.boards = list(boards)
        self.missing = missing
        self.init_status = init_status
        self.opened = 0
        self.open_sets = 0
        self.calls: list[str] = []
        self.hangs: threading.Event | None = None
        self._things: list[Any] = []
        self._board_at: dict[int, FakeBoard] = {}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in self.__dict__.get("missing", ()):
            raise AttributeError(name)
        own = _FUNCTIONS.get(name)
        if own is None:
            raise AttributeError(name)

        def function(*arguments: Any) -> int:
            self.calls.append(name)
            if self.hangs is not None:
                self.hangs.wait()
            return own(self, *arguments)

        return function

    def point(self, pointer: Any, thing: Any) -> None:
        """Let the pointer behind ``pointer`` stand for ``thing``."""
        memory = ctypes.c_uint64()
        self._things.append(memory)
        self._board_at[ctypes.addressof(memory)] = thing
        pointer._obj.contents = ctypes.cast(ctypes.pointer(memory), type(pointer._obj)).contents

    def thing(self, pointer: Any) -> Any:
        return self._board_at[ctypes.addressof(pointer.contents)]


def use(monkeypatch: pytest.MonkeyPatch, library: FakeLibrary) -> FakeLibrary:
    """Let ``pynvml`` find ``library`` where it would load the driver's."""
    monkeypatch.setattr(pynvml, "nvmlLib", library)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return library


def _init(library: FakeLibrary, flags: Any) -> int:
    library.opened += library.init_status == SUCCESS
    return library.init_status


def _shutdown(library: FakeLibrary) -> int:
    library.opened -= 1
    return SUCCESS


def _text(text: str) -> Any:
    def function(library: FakeLibrary, buffer: Any, size: Any) -> int:
        buffer.value = text.encode()
        return SUCCESS

    return function


def _cuda_version(library: FakeLibrary, version: Any) -> int:
    version._obj.value = 12080
    return SUCCESS


def _by_uuid(library: FakeLibrary, uuid: Any, device: Any) -> int:
    return _point_to(library, device, lambda board: board.uuid == uuid.value.decode())


def _by_bus_id(library: FakeLibrary, bus_id: Any, device: Any) -> int:
    return _point_to(library, device, lambda board: board.bus_id == bus_id.value.decode() and board.parent is None)


def _point_to(library: FakeLibrary, device: Any, wanted: Any) -> int:
    for board in library.boards:
        if wanted(board):
            library.point(device, board)
            return SUCCESS
    return NOT_FOUND


def _is_instance(library: FakeLibrary, device: Any, answer: Any) -> int:
    answer._obj.value = library.thing(device).parent is not None
    return SUCCESS


def _parent(library: FakeLibrary, device: Any, parent: Any) -> int:
    library.point(parent, library.thing(device).parent)
    return SUCCESS


def _pci(library: FakeLibrary, device: Any, info: Any) -> int:
    info._obj.busId = library.thing(device).bus_id.encode()
    return SUCCESS


def _name(library: FakeLibrary, device: Any, buffer: Any, size: Any) -> int:
    board = library.thing(device)
    if "nvmlDeviceGetName" not in board.answers:
        return board.status
    buffer.value = board.answers["nvmlDeviceGetName"].encode()
    return SUCCESS


def _serial(library: FakeLibrary, device: Any, buffer: Any, size: Any) -> int:
    board = library.thing(device)
    if "nvmlDeviceGetSerial" not in board.answers:
        return board.status
    buffer.value = board.answers["nvmlDeviceGetSerial"].encode()
    return SUCCESS


def _memory(library: FakeLibrary, device: Any, memory: Any) -> int:
    return _put(library, device, "nvmlDeviceGetMemoryInfo", (memory._obj, ("total", "used")))


def _busy(library: FakeLibrary, device: Any, busy: Any) -> int:
    return _put(library, device, "nvmlDeviceGetUtilizationRates", (busy._obj, ("gpu", "memory")))


def _put(library: FakeLibrary, device: Any, name: str, target: tuple[Any, tuple[str, ...]]) -> int:
    board = library.thing(device)
    if name not in board.answers:
        return board.status
    for attribute, value in zip(target[1], board.answers[name], strict=True):
        setattr(target[0], attribute, value)
    return SUCCESS


def _numbers(name: str) -> Any:
    """A function of one device that fills one pointer for each number of the answer."""

    def function(library: FakeLibrary, device: Any, *pointers: Any) -> int:
        board = library.thing(device)
        if name not in board.answers:
            return board.status
        answer = board.answers[name]
        for pointer, value in zip(pointers, answer if isinstance(answer, tuple) else (answer,), strict=True):
            pointer._obj.value = value
        return SUCCESS

    return function


def _keyed(name: str) -> Any:
    """A function of one device and some numbers, whose answer depends on them."""

    def function(library: FakeLibrary, device: Any, *arguments: Any) -> int:
        board = library.thing(device)
        *numbers, pointer = arguments
        key = tuple(number.value for number in numbers)
        answer = board.answers.get(name, {}).get(key[0] if len(key) == 1 else key)
        if answer is None:
            return board.status
        pointer._obj.value = answer
        return SUCCESS

    return function


def _temperature(library: FakeLibrary, device: Any, temperature: Any) -> int:
    board = library.thing(device)
    if "nvmlDeviceGetTemperatureV" not in board.answers:
        return board.status
    temperature._obj.temperature = board.answers["nvmlDeviceGetTemperatureV"]
    return SUCCESS


def _retired_pages(library: FakeLibrary, device: Any, cause: Any, count: Any, addresses: Any) -> int:
    board = library.thing(device)
    if "nvmlDeviceGetRetiredPages" not in board.answers:
        return board.status
    count._obj.value = board.answers["nvmlDeviceGetRetiredPages"][cause.value]
    return SUCCESS


def _fields(library: FakeLibrary, device: Any, count: Any, values: Any) -> int:
    board = library.thing(device)
    if "nvmlDeviceGetFieldValues" not in board.answers:
        return board.status
    for value in values._obj[: count.value]:
        known = board.answers["nvmlDeviceGetFieldValues"].get(value.fieldId)
        value.nvmlReturn = NOT_SUPPORTED if known is None else SUCCESS
        value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
        value.value.ullVal = known or 0
    return SUCCESS


def _create_set(library: FakeLibrary, events: Any) -> int:
    library.open_sets += 1
    library.point(events, [])
    return SUCCESS


def _register(library: FakeLibrary, device: Any, kinds: Any, events: Any) -> int:
    board = library.thing(device)
    assert kinds.value == pynvml.nvmlEventTypeXidCriticalError
    if not board.gives_events:
        return NO_PERMISSION
    library.thing(events).append(board)
    return SUCCESS


def _wait(library: FakeLibrary, events: Any, data: Any, timeout: Any) -> int:
    assert timeout.value == 0
    (board,) = library.thing(events)
    if not board.xids:
        return TIMEOUT
    data._obj.eventType, data._obj.eventData = pynvml.nvmlEventTypeXidCriticalError, board.xids.pop(0)
    return SUCCESS


def _free_set(library: FakeLibrary, events: Any) -> int:
    library.open_sets -= 1
    return SUCCESS


_FUNCTIONS: dict[str, Any] = {
    "nvmlInitWithFlags": _init,
    "nvmlShutdown": _shutdown,
    "nvmlSystemGetDriverVersion": _text("570.86.15"),
    "nvmlSystemGetNVMLVersion": _text("12.570.86.15"),
    "nvmlSystemGetCudaDriverVersion": _cuda_version,
    "nvmlDeviceGetHandleByUUID": _by_uuid,
    "nvmlDeviceGetHandleByPciBusId_v2": _by_bus_id,
    "nvmlDeviceIsMigDeviceHandle": _is_instance,
    "nvmlDeviceGetDeviceHandleFromMigDeviceHandle": _parent,
    "nvmlDeviceGetMigMode": _numbers("nvmlDeviceGetMigMode"),
    "nvmlDeviceGetPciInfo_v3": _pci,
    "nvmlDeviceGetName": _name,
    "nvmlDeviceGetSerial": _serial,
    "nvmlDeviceGetMemoryInfo": _memory,
    "nvmlDeviceGetUtilizationRates": _busy,
    "nvmlDeviceGetTemperatureV": _temperature,
    "nvmlDeviceGetTemperature": _keyed("nvmlDeviceGetTemperature"),
    "nvmlDeviceGetPowerUsage": _numbers("nvmlDeviceGetPowerUsage"),
    "nvmlDeviceGetEnforcedPowerLimit": _numbers("nvmlDeviceGetEnforcedPowerLimit"),
    "nvmlDeviceGetClockInfo": _keyed("nvmlDeviceGetClockInfo"),
    "nvmlDeviceGetCurrentClocksEventReasons": _numbers("nvmlDeviceGetCurrentClocksEventReasons"),
    "nvmlDeviceGetCurrentClocksThrottleReasons": _numbers("nvmlDeviceGetCurrentClocksThrottleReasons"),
    "nvmlDeviceGetTotalEccErrors": _keyed("nvmlDeviceGetTotalEccErrors"),
    "nvmlDeviceGetEccMode": _numbers("nvmlDeviceGetEccMode"),
    "nvmlDeviceGetRetiredPages": _retired_pages,
    "nvmlDeviceGetRemappedRows": _numbers("nvmlDeviceGetRemappedRows"),
    "nvmlDeviceGetPcieReplayCounter": _numbers("nvmlDeviceGetPcieReplayCounter"),
    "nvmlDeviceGetFieldValues": _fields,
    "nvmlEventSetCreate": _create_set,
    "nvmlDeviceRegisterEvents": _register,
    "nvmlEventSetWait_v2": _wait,
    "nvmlEventSetFree": _free_set,
}
