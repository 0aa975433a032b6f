"""Reads temperature, power, clocks and errors of the GPUs in use from NVIDIA's management library (``nvidia-ml-py``).

GPUs are found by UUID, or else by PCI address, so ``CUDA_VISIBLE_DEVICES`` and CUDA's device order do not matter. A
MIG instance has its own memory; all other values come from its board. A value that a GPU does not report is absent.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from steadytrain.capture.machine.allocator import CudaDevice
from steadytrain.capture.machine.kernel_log import KernelLog, pci_address
from steadytrain.core.own_errors import own

EVENTS_MAX = 64
"""XID events per reading."""

# Bits of nvmlDeviceGetCurrentClocksEventReasons, as the library documents them.
_POWER = 0x04 | 0x80  # software power cap, hardware power brake
_HEAT = 0x20 | 0x40  # software and hardware thermal slowdown
_HARDWARE = 0x08

# Fields of nvmlDeviceGetFieldValues.
_MEMORY_TEMPERATURE = 82
_NVLINK_ERRORS = (38, 45, 52, 59)  # flit CRC, data CRC, replay, recovery: totals over all links

_GONE = (15, 16)  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED

_VOLATILE, _LIFETIME = 0, 1
_CORRECTED, _UNCORRECTED = 0, 1
_VALUE_NAMES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
_NOT_AVAILABLE = 1 << 63
"""NVML means "not available" by the largest number of the type."""


@dataclass
class Board:
    """One GPU under its row. ``memory`` is the handle that reports its memory; None if it is unknown."""

    handle: Any
    memory: Any | None
    is_instance: bool
    bus_id: str
    events: Any | None
    counted_xids: int = 0
    last_xid: int | None = None


@dataclass
class NvmlProbe:
    """Reads NVML. Every method may block in the driver: call it from a thread that nothing waits for.

    Args:
        library: the module ``pynvml``.
    """

    library: Any
    notes: list[str] = field(default_factory=list)
    _boards: dict[int, Board | None] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)
    _kernel_log: KernelLog | None = None
    _open: bool = False

    def open(self) -> None:
        """Connect to the driver. Raises ``NVMLError`` if there is none."""
        self.library.nvmlInit()
        self._open = True

    def close(self) -> None:
        if not self._open:
            return
        self._open = False
        for board in self._boards.values():
            if board is not None and board.events is not None:
                self._ask("nvmlEventSetFree", board.events)
        if self._kernel_log is not None:
            self._kernel_log.close()
        self.library.nvmlShutdown()

    def read(self, devices: Sequence[CudaDevice]) -> dict[int, dict[str, float]]:
        """Columns by device index; empty for a device that the library does not know."""
        boards = {device.index: self._board(device) for device in devices}
        self._read_kernel_log([board for board in boards.values() if board is not None])
        return {index: self._read(board) if board is not None else {} for index, board in boards.items()}

    def facts(self, devices: Sequence[CudaDevice]) -> dict[str, Any]:
        """Driver, library, and the constant facts of each GPU in use."""
        cuda = self._ask("nvmlSystemGetCudaDriverVersion")
        return {
            "driver": self._ask("nvmlSystemGetDriverVersion"),
            "nvml": self._ask("nvmlSystemGetNVMLVersion"),
            "cuda_of_driver": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda is not None else None,
            "gpus": [self._gpu_facts(device) for device in devices],
        }

    def _gpu_facts(self, device: CudaDevice) -> dict[str, Any]:
        board = self._board(device)
        if board is None:
            return {"row": device.row, "name": device.name}
        memory = self._ask("nvmlDeviceGetMemoryInfo", board.memory) if board.memory is not None else None
        ecc = self._ask("nvmlDeviceGetEccMode", board.handle)
        return {
            "row": device.row,
            "name": self._ask("nvmlDeviceGetName", board.handle) or device.name,
            "bus": board.bus_id or None,
            "serial": self._ask("nvmlDeviceGetSerial", board.handle),
            "uuid": device.uuid,
            "instance_of_a_board": board.is_instance,
            "memory_bytes": _known(memory.total) if memory is not None else None,
            "ecc": bool(ecc[0]) if ecc is not None else None,
            "xid_from": "events" if board.events is not None else "kernel log" if self._kernel_log else None,
        }

    # -- finding the board -----------------------------------------------------------------------------------------

    def _board(self, device: CudaDevice) -> Board | None:
        if device.index not in self._boards:
            self._boards[device.index] = board = self._find(device)
            if board is None:
                self.notes.append(f"{device.row} is not known to NVML: its temperature, power and errors are absent")
            elif board.memory is None:
                self.notes.append(f"{device.row} is a MIG instance that could not be identified: its memory is absent")
        return self._boards[device.index]

    def _find(self, device: CudaDevice) -> Board | None:
        handle = None
        for prefix in ("GPU-", "MIG-") if device.uuid else ():
            handle = handle or self._ask("nvmlDeviceGetHandleByUUID", f"{prefix}{device.uuid}")
        if handle is None and device.bus_id:
            handle = self._ask("nvmlDeviceGetHandleByPciBusId", device.bus_id)
        if handle is None:
            return None
        memory: Any | None = handle
        is_instance = self._is_instance(handle)
        if not is_instance and (self._ask("nvmlDeviceGetMigMode", handle) or (0,))[0]:
            # Older versions of CUDA report the board's UUID for its instances.
            is_instance, memory = True, self._visible_instance(device.index)
        if is_instance and memory is handle:
            handle = self._ask("nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle) or handle
        address = self._ask("nvmlDeviceGetPciInfo", handle)
        bus_id = address.busId if address is not None else device.bus_id or ""
        bus_id = bus_id.decode("ascii", errors="replace") if isinstance(bus_id, bytes) else bus_id
        return Board(handle, memory, is_instance, bus_id, self._events(handle))

    def _is_instance(self, handle: Any) -> bool:
        answer = self._ask("nvmlDeviceIsMigDeviceHandle", handle)
        return bool(getattr(answer, "value", answer))

    def _visible_instance(self, index: int) -> Any | None:
        """The MIG instance that ``CUDA_VISIBLE_DEVICES`` names for this device."""
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        name = visible[index].strip() if index < len(visible) else ""
        return self._ask("nvmlDeviceGetHandleByUUID", name) if name.startswith("MIG-") else None

    def _events(self, handle: Any) -> Any | None:
        """An event set for the board's XID errors; None if the driver or the container does not allow it."""
        events = self._ask("nvmlEventSetCreate")
        if events is None:
            return None
        try:
            self.library.nvmlDeviceRegisterEvents(handle, self.library.nvmlEventTypeXidCriticalError, events)
        except self.library.NVMLError:
            self._ask("nvmlEventSetFree", events)
            return None
        return events

    # -- reading it ------------------------------------------------------------------------------------------------

    def _read(self, board: Board) -> dict[str, float]:
        ask, handle = self._ask, board.handle
        found: dict[str, float | None] = {}
        memory = ask("nvmlDeviceGetMemoryInfo", board.memory) if board.memory is not None else None
        if memory is not None:
            found["memory_used_bytes"], found["memory_total_bytes"] = _known(memory.used), _known(memory.total)
        busy = ask("nvmlDeviceGetUtilizationRates", board.memory) if board.memory is not None else None
        if busy is not None:
            found["busy_share"], found["memory_busy_share"] = busy.gpu / 100, busy.memory / 100
        found["temperature_c"] = self._temperature(handle)
        found["power_w"] = _thousandth(ask("nvmlDeviceGetPowerUsage", handle))
        found["power_limit_w"] = _thousandth(ask("nvmlDeviceGetEnforcedPowerLimit", handle))
        found["sm_clock_mhz"] = ask("nvmlDeviceGetClockInfo", handle, self.library.NVML_CLOCK_SM)
        found["memory_clock_mhz"] = ask("nvmlDeviceGetClockInfo", handle, self.library.NVML_CLOCK_MEM)
        reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        if reasons is None:  # the name that older drivers know
            reasons = ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle)
        if reasons is not None:
            found["slowed_by_power"] = bool(reasons & _POWER)
            found["slowed_by_heat"] = bool(reasons & _HEAT)
            found["slowed_by_hardware"] = bool(reasons & _HARDWARE)
        found["ecc_corrected"] = ask("nvmlDeviceGetTotalEccErrors", handle, _CORRECTED, _VOLATILE)
        found["ecc_uncorrected"] = ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _VOLATILE)
        found["ecc_corrected_lifetime"] = ask("nvmlDeviceGetTotalEccErrors", handle, _CORRECTED, _LIFETIME)
        found["ecc_uncorrected_lifetime"] = ask("nvmlDeviceGetTotalEccErrors", handle, _UNCORRECTED, _LIFETIME)
        pages = [ask("nvmlDeviceGetRetiredPages", handle, cause) for cause in (0, 1)]
        if any(one is not None for one in pages):
            found["retired_pages"] = sum(len(one) for one in pages if one is not None)
        rows = ask("nvmlDeviceGetRemappedRows", handle)
        if rows is not None:
            found["remapped_rows"] = rows[0] + rows[1]
            found["remapping_pending"], found["remapping_failed"] = rows[2], rows[3]
        found["pcie_replays"] = ask("nvmlDeviceGetPcieReplayCounter", handle)
        fields = self._fields(handle, (_MEMORY_TEMPERATURE, *_NVLINK_ERRORS))
        found["memory_temperature_c"] = fields.pop(_MEMORY_TEMPERATURE, None)
        found["nvlink_errors"] = sum(fields.values()) if fields else None
        self._read_events(board)
        if board.events is not None or self._kernel_log is not None:
            found["xid_errors"], found["xid_last"] = board.counted_xids, board.last_xid
        return {name: float(value) for name, value in found.items() if value is not None}

    def _temperature(self, handle: Any) -> float | None:
        sensor = self.library.NVML_TEMPERATURE_GPU
        newer: float | None = self._ask("nvmlDeviceGetTemperatureV", handle, sensor)
        older: float | None = self._ask("nvmlDeviceGetTemperature", handle, sensor) if newer is None else None
        return older if newer is None else newer

    def _fields(self, handle: Any, numbers: Sequence[int]) -> dict[int, float]:
        """The values of the numbered fields that this board reports."""
        found = {}
        for answer in self._ask("nvmlDeviceGetFieldValues", handle, list(numbers)) or ():
            if answer.nvmlReturn == 0 and answer.valueType < len(_VALUE_NAMES):
                value = _known(getattr(answer.value, _VALUE_NAMES[answer.valueType]))
                if value is not None:
                    found[int(answer.fieldId)] = value
        return found

    def _read_events(self, board: Board) -> None:
        for _ in range(EVENTS_MAX if board.events is not None else 0):
            try:
                event = self.library.nvmlEventSetWait(board.events, 0)
            except self.library.NVMLError:  # there is no event
                return
            board.counted_xids += 1
            board.last_xid = int(event.eventData)

    def _read_kernel_log(self, boards: Sequence[Board]) -> None:
        """Read XIDs of boards without events. The log opens for the first such board; without it XIDs are absent."""
        without = [board for board in boards if board.events is None]
        if not without:
            return
        if self._kernel_log is None:
            self._kernel_log = _open_kernel_log()
        for address, code in self._kernel_log.read() if self._kernel_log is not None else ():
            for board in without:
                if pci_address(board.bus_id) == address:
                    board.counted_xids, board.last_xid = board.counted_xids + 1, code

    def _ask(self, name: str, *arguments: Any) -> Any:
        """Call one library function; None if this GPU, driver or version of the library does not support it."""
        function: Callable[..., Any] | None = getattr(self.library, name, None)
        if function is None:
            return None
        try:
            return function(*arguments)
        except self.library.NVMLError as error:
            if error.value in _GONE and (note := f"NVML reports for a GPU in use: {error}") not in self._told:
                self._told.add(note)
                self.notes.append(note)
            return None


def _open_kernel_log() -> KernelLog | None:
    try:
        return KernelLog()
    except own(OSError):
        return None


def _known(value: float) -> float | None:
    return float(value) if value < _NOT_AVAILABLE else None


def _thousandth(value: float | None) -> float | None:
    return value / 1000 if value is not None else None
