"""What a loss saved is read on every torch, and no hook of the script is ever run for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor  # noqa: E402
from torch.autograd.graph import saved_tensors_hooks  # noqa: E402
from torch.nn import functional  # noqa: E402

from steadytrain.capture.hooks.saved_hooks import put_saved_hooks  # noqa: E402
from steadytrain.capture.looks.graph_nodes import saved_tensor  # noqa: E402
from steadytrain.core.torch_private import SAVED_HOOK  # noqa: E402
from watching import watching  # noqa: E402

LABELS = torch.tensor([1, 0])
METHODS = ("__enter__", "register_hooks")


def likelihood() -> Tensor:
    return functional.nll_loss(torch.ones(2, 2, requires_grad=True), LABELS)


def handed_over(saved: Tensor) -> Tensor:
    raise AssertionError("a hook of the script has run")


@pytest.fixture
def _older_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As torch 2.6: a saved tensor does not tell whether it has a hook."""
    monkeypatch.setattr(SAVED_HOOK, "attribute", "no_such_attribute")
    undo = put_saved_hooks()
    yield
    undo()


older_torch = pytest.mark.usefixtures("_older_torch")


def test_labels_are_read_and_a_hook_is_not_run() -> None:
    undo = put_saved_hooks()
    try:
        read = saved_tensor(likelihood().grad_fn, "target")
        with saved_tensors_hooks(lambda tensor: tensor, handed_over):
            hooked = likelihood()
        assert read is not None
        assert torch.equal(read, LABELS)
        assert saved_tensor(hooked.grad_fn, "target") is None
    finally:
        undo()


@older_torch
def test_an_older_torch_is_read_until_the_script_puts_hooks() -> None:
    read = saved_tensor(likelihood().grad_fn, "target")
    assert read is not None
    assert torch.equal(read, LABELS)
    with saved_tensors_hooks(lambda tensor: tensor, handed_over):
        hooked = likelihood()
    assert saved_tensor(hooked.grad_fn, "target") is None
    assert saved_tensor(likelihood().grad_fn, "target") is None


@older_torch
def test_an_older_torch_is_read_until_one_tensor_is_given_hooks() -> None:
    hooked = likelihood()
    hooked.grad_fn._raw_saved_target.register_hooks(lambda tensor: tensor, handed_over)
    assert saved_tensor(hooked.grad_fn, "target") is None


@older_torch
def test_a_freed_tensor_is_not_read() -> None:
    loss = likelihood()
    node = loss.grad_fn
    loss.backward()
    assert saved_tensor(node, "target") is None


def test_a_watch_leaves_the_methods_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SAVED_HOOK, "attribute", "no_such_attribute")
    owners = saved_tensors_hooks, SAVED_HOOK.owner()
    before = [vars(owner)[name] for owner, name in zip(owners, METHODS, strict=True)]
    with watching(tmp_path / "run", "observe"):
        during = [vars(owner)[name] for owner, name in zip(owners, METHODS, strict=True)]
    after = [vars(owner)[name] for owner, name in zip(owners, METHODS, strict=True)]
    assert all(one is not other for one, other in zip(before, during, strict=True))
    assert all(one is other for one, other in zip(before, after, strict=True))
