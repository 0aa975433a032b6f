"""Reads XID errors from the kernel log, for drivers without events. Needs the permission to read ``/dev/kmsg``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from steadytrain.core.own_errors import own
from steadytrain.storage.own_file import OwnFile

RECORDS_MAX = 4096
"""Records per read; the next read returns the rest."""

_RECORD_BYTES_MAX = 8192
_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]{1,32})\): (\d+)")


class KernelLog:
    """Reads the records that arrive after it was opened.

    Raises:
        OSError: this process cannot read the log.
    """

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._file = OwnFile(path, os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self._file.descriptor(), 0, os.SEEK_END)

    def read(self) -> list[tuple[tuple[int, ...], int]]:
        """The PCI address and code of each error since the last call."""
        text = []
        if not self._file.is_ours:  # the script closed it: the errors since then are not known
            os.lseek(self._file.descriptor(), 0, os.SEEK_END)
        descriptor = self._file.descriptor()
        for _ in range(RECORDS_MAX):
            try:
                record = os.read(descriptor, _RECORD_BYTES_MAX)
            except BlockingIOError:
                break
            except own(OSError):
                continue  # the kernel has overwritten the next record; reading continues with the oldest one left
            if not record:
                break
            text.append(record.decode("utf-8", errors="replace"))
        return [(pci_address(bus), int(code)) for bus, code in _XID.findall("".join(text))]

    def close(self) -> None:
        self._file.close()


def pci_address(text: str) -> tuple[int, ...]:
    """Domain, bus and slot, in any of their spellings: ``0000:65:00``, ``00000000:65:00.0``; empty for other text."""
    parts = text.partition(".")[0].split(":")
    try:
        return tuple(int(part, 16) for part in parts)
    except ValueError:
        return ()
