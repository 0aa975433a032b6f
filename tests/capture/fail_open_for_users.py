"""The fixture with which errors of ours are suppressed as they are for users."""

from __future__ import annotations

import pytest

from steadytrain.capture.hooks.fail_open import RAISE_VARIABLE, Guard


@pytest.fixture(autouse=True)
def _as_for_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here our errors are swallowed as they are for users, in launched processes too."""
    monkeypatch.setattr(Guard, "reraise", False)
    monkeypatch.setenv(RAISE_VARIABLE, "")
