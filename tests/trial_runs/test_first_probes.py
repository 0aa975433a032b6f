"""The probes before a script's first update have the data of their own steps, although the script draws them itself."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from scripts import run_script  # noqa: E402
from steadytrain.experiments.specs import Change, Entry, Spec  # noqa: E402
from steadytrain.trial_runs.pool import Pool  # noqa: E402

pytestmark = pytest.mark.slow

STEPS, PROBED = 6, (2, 3, 5)
SCRIPT = f"""
    import torch
    from torch import nn
    from torch.nn import functional

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range({STEPS}):
        rows = torch.randn(16, 4)
        noisy = rows + 0.1 * torch.randn(16, 4)
        ASIDE
        loss = functional.mse_loss(model(noisy), rows.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def losses_at_the_start() -> list[float]:
    """What each step's data cost before any update."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        found = []
        for _ in range(STEPS):
            rows = torch.randn(16, 4)
            noisy = rows + 0.1 * torch.randn(16, 4)
            found.append(float(functional.mse_loss(model(noisy), rows.sum(1, keepdim=True)).detach()))
        return found


@pytest.mark.parametrize("aside", ["pass", "torch.no_grad()(model)(noisy)"], ids=["alone", "after a forward aside"])
def test_data_that_the_script_draws_are_those_of_the_probed_steps(aside: str, tmp_path: Path) -> None:
    run = run_script(tmp_path, SCRIPT.replace("ASIDE", aside), "--keep-rewind").run_dir
    probes = [Entry(step, "probe") for step in PROBED]
    schedule = (*probes, *(Entry(step) for step in range(1, 5)), *probes)
    unchanged = Spec("unchanged", 0, 0, schedule, (), "all")
    still = Spec("still", 0, 0, schedule, (Change("learning-rate", {"factor": 0.0}),), "all")
    with Pool(run, keep=False) as pool:
        assert pool.launch_key(unchanged) == pool.launch_key(still)  # one launch of the script serves both
        by_name = {one.spec.trial: one for one in pool.run([unchanged, still], budget_s=120.0)}
    outcome = by_name["unchanged"]
    assert outcome.ran, outcome.why_not
    assert outcome.exact
    assert by_name["still"].probes[: len(PROBED)] == outcome.probes[: len(PROBED)]
    assert [one.loss for one in by_name["still"].probes[len(PROBED) :]] == [one.loss for one in outcome.probes[:3]]
    if aside != "pass":
        return  # the state before its first forward is that after its draws: probes have other rows of the same kind
    first, expected = outcome.probes[: len(PROBED)], losses_at_the_start()
    assert [(one.step, one.loss) for one in first] == [(step, pytest.approx(expected[step - 1])) for step in PROBED]
    assert [one.loss for one in outcome.probes[len(PROBED) :]] != [one.loss for one in first]
