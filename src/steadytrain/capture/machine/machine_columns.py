"""The columns of the table ``machine``. The row ``host`` has the first ones, rows like ``cuda:0`` the others."""

from __future__ import annotations

from collections.abc import Mapping

HOST_COLUMNS: Mapping[str, str] = {
    "process_memory_bytes": "resident memory of this process (its data loader workers not included)",
    "process_memory_peak_bytes": "largest resident memory of this process so far",
    "available_memory_bytes": "host memory available without swapping",
    "memory_limit_bytes": "tightest memory limit of the control groups that this process is in",
    "limited_memory_bytes": "memory in use of the control group with that limit, page cache included",
    "swap_used_bytes": "swap space in use on the host",
    "cpu_busy_share": "share of all processors' time that was busy since the last reading, 0 to 1",
    "process_cpu_cores": "processor seconds of this process for each second since the last reading",
    "disk_free_bytes": "free space of the disk that holds the run folder",
}

ACCELERATOR_COLUMNS: Mapping[str, str] = {
    "allocated_bytes": "memory that torch's allocator has given to tensors of this process",
    "reserved_bytes": "memory that torch's allocator holds from the driver",
    "active_bytes": "memory of blocks in use, or freed while a stream still uses them",
    "unused_reserved_bytes": "reserved but not allocated: what fragmentation and caching cost",
    "allocated_peak_bytes": "largest allocated_bytes so far (since the script last reset it)",
    "allocation_retries": "allocations that failed and were tried again after the cache was emptied",
    "out_of_memory_errors": "allocations that failed for good",
    "memory_used_bytes": "memory in use on the device (of the MIG instance where there is one), by all processes",
    "memory_total_bytes": "memory of the device (of the MIG instance)",
    "busy_share": "share of the driver's last sample period in which a kernel ran, 0 to 1",
    "memory_busy_share": "share of that period in which device memory was read or written, 0 to 1",
    "temperature_c": "temperature of the GPU, degrees Celsius",
    "memory_temperature_c": "temperature of the device memory, degrees Celsius",
    "power_w": "power draw of the board, watts",
    "power_limit_w": "power limit in force, watts",
    "sm_clock_mhz": "clock of the multiprocessors, MHz",
    "memory_clock_mhz": "clock of the device memory, MHz",
    "slowed_by_power": "1 where clocks are held down by a power cap or power brake",
    "slowed_by_heat": "1 where clocks are held down because of heat",
    "slowed_by_hardware": "1 where the hardware slows clocks down (heat, power brake or power supply)",
    "ecc_corrected": "memory errors corrected since the driver was loaded",
    "ecc_uncorrected": "memory errors not correctable since the driver was loaded",
    "ecc_corrected_lifetime": "memory errors corrected in the life of the board",
    "ecc_uncorrected_lifetime": "memory errors not correctable in the life of the board",
    "retired_pages": "memory pages retired because of errors",
    "remapped_rows": "memory rows replaced for errors",
    "remapping_pending": "1 where a row waits for a reset to be replaced",
    "remapping_failed": "1 where a row could not be replaced: the board needs service",
    "xid_errors": "critical errors that the driver reported (XID) since the watch began",
    "xid_last": "code of the last of them",
    "pcie_replays": "transfers over PCIe that had to be repeated",
    "nvlink_errors": "CRC errors, replays and recoveries on all NVLinks",
}

COLUMNS: Mapping[str, str] = {**HOST_COLUMNS, **ACCELERATOR_COLUMNS}
"""Every column of the table, in its order, with meaning and unit."""
