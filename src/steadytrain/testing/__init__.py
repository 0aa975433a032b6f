"""Helpers for tests, ours and yours. They need no test framework.

| file | for | imports torch |
|---|---|---|
| ``windows`` | tests of detectors: a window of steps in one line | no |
| ``contract`` | tests of training loops: what has to hold for every way of training that is watched | yes |
| ``diary`` | what a loop did, to the last bit, and a fault planted in it | yes |
| ``leftovers`` | what of steadytrain is in the process at this moment | yes |

The names below are loaded when they are first used, so that a test of a detector needs no torch.
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
