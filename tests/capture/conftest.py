"""Every error of our own is raised here instead of told and swallowed; sums are made by one thread, so that they repeat."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from steadytrain.capture.failopen import raise_own_errors  # noqa: E402 (torch is optional for an install)


@pytest.fixture(autouse=True)
def _own_errors_are_raised() -> Iterator[None]:
    with raise_own_errors():
        yield


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
