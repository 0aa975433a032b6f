"""Helpers for tests of detectors and of training loops, ours and yours.

They need no test framework, and no other room imports them.

| file | for | imports torch |
|---|---|---|
| ``windows`` | tests of detectors: a window of steps in one line | no |
| ``loop_contract`` | tests of training loops: what must hold for every watched way to train | yes |
| ``diary`` | records what a loop did, bit for bit, and plants a fault | yes |
| ``leftovers`` | finds what steadytrain has installed in the process | yes |

The names below are loaded on first use, so a test of a detector needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from steadytrain.testing.windows import healthy_loss, newest, steps, table

if TYPE_CHECKING:
    from steadytrain.testing.loop_contract import (
        Probe,
        assert_contract,
        assert_fails_open,
        assert_fault_is_caught,
        assert_hooks_gone,
        assert_invisible,
        assert_skip_is_recorded,
        by_itself,
        zero_code,
    )

__all__ = [
    "Probe",
    "assert_contract",
    "assert_fails_open",
    "assert_fault_is_caught",
    "assert_hooks_gone",
    "assert_invisible",
    "assert_skip_is_recorded",
    "by_itself",
    "healthy_loss",
    "newest",
    "steps",
    "table",
    "zero_code",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from steadytrain.testing import loop_contract

        return getattr(loop_contract, name)
    raise AttributeError(f"module 'steadytrain.testing' has no attribute {name!r}")
