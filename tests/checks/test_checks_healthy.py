"""Healthy models of different families: no check fails, and at most one warns."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")

from healthy_models import FAMILIES  # noqa: E402

from replaying import plain_process  # noqa: E402
from steadytrain import preflight  # noqa: E402
from steadytrain.capture.snapshots.digests import digest  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
QUICK = ("tabular", "small_gpt")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with plain_process():
        yield


@pytest.mark.parametrize(
    "family", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in sorted(FAMILIES)]
)
def test_a_healthy_family_passes(family: str) -> None:
    given = FAMILIES[family]()
    model, random = given["model"], torch.get_rng_state()
    before = {name: digest(value) for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    report = preflight(**given)
    loud = {e["name"]: e["message"] for e in report.document["checks"] if e["status"] in ("fail", "warn")}
    assert report.ok, loud
    assert len(loud) <= 1, loud
    assert report.document["counts"]["pass"] >= 8
    assert {name: digest(value) for name, value in model.state_dict().items()} == before
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(parameter.grad is None for parameter in model.parameters())
