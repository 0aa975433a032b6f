"""Trials of a single bad step start right before it, from the state that the bundle holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from scripts import run_script
from steadytrain.experiments.case import AFTER_STEP, Case
from steadytrain.experiments.case_files import open_case
from steadytrain.experiments.contrast import plan_contrast
from steadytrain.experiments.fix_verification import FOLLOWED_MIN
from steadytrain.experiments.specs import NotApplicable, Spec
from steadytrain.experiments.trial_catalog import plan_of, trial, with_controls
from steadytrain.experiments.trials.drop_batch import NEXT_IS_BAD
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.state_before import MOMENTS, step_before
from steadytrain.storage.tape_files import find_recording
from steadytrain.trial_runs.pool import Pool
from steadytrain.trial_runs.trial_session import How, verify

pytestmark = pytest.mark.slow

STEP = 30
SCRIPT = f"""
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    rows = torch.randn(8 * 60, 4)
    mask = torch.ones(8 * 60, 4)
    mask[8 * {STEP - 1} + 3] = 0  # a row of step {STEP} without anything to learn from
    model = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 60)
    for x, kept in DataLoader(TensorDataset(rows, mask), 8):
        errors = (model(x) - x.abs()) ** 2
        loss = ((errors * kept).sum(1) / kept.sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    outcome = run_script(tmp_path_factory.mktemp("run"), SCRIPT, "--policy", "stop")
    (found,) = (outcome.run_dir / "incidents").glob(f"step-*{STEP}")
    return found


@pytest.fixture
def case(bundle: Path) -> Case:
    return open_case(bundle)


@pytest.fixture
def pool(bundle: Path) -> Iterator[Pool]:
    with Pool(bundle, keep=False) as made:
        yield made


def specs_of(name: str, case: Case) -> tuple[Spec, ...]:
    plan = plan_of(trial(name), case)
    assert not isinstance(plan, NotApplicable), plan
    return plan


def test_the_change_within_the_step_is_judged_from_right_before_it(case: Case, pool: Pool) -> None:
    names = ("unchanged", "safe-operation", "drop-batch", "other-seed")
    specs = [spec for name in names for spec in specs_of(name, case)]
    assert {spec.begin for spec in specs} == {STEP - 1}
    outcomes = list(pool.run(specs))
    assert all(one.ran for one in outcomes), outcomes
    controls = [one for one in outcomes if trial(one.spec.trial).control]
    effects = {
        name: trial(name).judge(case, controls, [one for one in outcomes if one.spec.trial == name]).effect
        for name in names
    }
    assert effects == {
        "unchanged": "persists",
        "other-seed": "persists",
        "safe-operation": "removed",
        "drop-batch": "removed",
    }
    (control,) = (one for one in outcomes if one.spec.trial == "unchanged")
    assert control.exact, control.notes
    (dropped,) = (one for one in outcomes if one.spec.trial == "drop-batch")
    assert len(dropped.steps) == AFTER_STEP  # the refused one is not trained on


def test_a_change_that_needs_steps_before_keeps_its_snapshot_and_gets_a_control_from_there(case: Case) -> None:
    early = specs_of("learning-rate-third", case)
    assert early[0].begin == case.begin
    assert case.begin is not None
    assert case.begin < STEP - 2
    both = with_controls([*specs_of("unchanged", case), *early], case)
    assert sorted(spec.begin or 0 for spec in both if spec.trial == "unchanged") == [case.begin, STEP - 1]
    assert with_controls(early, case, [case.begin]) == list(early)


def test_the_placebo_begins_where_its_trial_does(case: Case) -> None:
    for name, begin in (("safe-operation", STEP - 1), ("learning-rate-third", case.begin)):
        plan = plan_contrast(trial(name), case, specs_of(name, case))
        assert {spec.begin for spec in plan.specs} == {begin}


def test_a_number_of_steps_to_follow_starts_at_the_snapshot(case: Case) -> None:
    assert specs_of("safe-operation", case.following(20))[0].begin == case.begin


@pytest.mark.long
def test_a_fix_within_the_step_is_verified_from_right_before_it(bundle: Path, case: Case) -> None:
    found = verify(bundle, case, "safe-operation", How(), steps=None)
    assert found.meaning == "removed"
    assert found.followed == FOLLOWED_MIN
    assert found.exact


def test_a_bundle_without_its_moments_has_no_state_to_start_from(bundle: Path, case: Case) -> None:
    incident, recording = open_bundle(bundle).incident, find_recording(bundle)
    assert step_before(bundle, incident, recording) == case.before == STEP - 1
    aside = bundle.parent / MOMENTS
    (bundle / MOMENTS).rename(aside)
    try:
        assert step_before(bundle, incident, recording) is None
    finally:
        aside.rename(bundle / MOMENTS)


INPUTS_FIRST = """
    import threading
    import torch
    from torch import nn

    torch.manual_seed(0)
    over = threading.Event()
    threading.Thread(target=over.wait, daemon=True).start()  # a fork would miss it
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(1, 40):
        x = torch.randn(16, 4)
        if step == 30:
            x[3] = 0
        loss = (model(x / x.norm(dim=1, keepdim=True)) - x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.long
def test_a_function_that_the_script_calls_before_its_model_is_changed_too(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, INPUTS_FIRST, "--policy", "stop")
    (found,) = (outcome.run_dir / "incidents").glob(f"step-*{STEP}")
    case = open_case(found)
    with Pool(found, keep=False) as pool:
        outcomes = list(pool.run([*specs_of("unchanged", case), *specs_of("safe-operation", case)]))
    (control,), (safe,) = (
        [one for one in outcomes if one.spec.trial == name] for name in ("unchanged", "safe-operation")
    )
    assert trial("safe-operation").judge(case, [control], [safe]).effect == "removed", (control, safe)


BAD_FIRST = """
    import torch
    from torch import nn

    torch.manual_seed(0)
    rows = torch.randn(512, 8)
    rows[5, 2] = float("inf")
    wanted = rows[:, :1].nan_to_num(posinf=0.0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(40):
        taken = torch.arange(32) + 32 * (step % 16)
        loss = (model(rows[taken]) - wanted[taken]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.long
def test_a_bad_first_batch_is_left_out_of_a_trial(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, BAD_FIRST, "--policy", "stop")
    (found,) = (outcome.run_dir / "incidents").glob("step-*")
    case = open_case(found)
    assert case.step == 1
    names = ("unchanged", "drop-batch", "learning-rate-third")
    with Pool(found, keep=False) as pool:
        outcomes = list(pool.run([spec for name in names for spec in specs_of(name, case)]))
    control, dropped, slower = ([one for one in outcomes if one.spec.trial == name] for name in names)
    assert control[0].exact
    assert trial("drop-batch").judge(case, control, dropped).effect == "removed", (control, dropped)
    assert "no update that it could change" in str(slower[0])


ALL_BAD = """
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    rows, weights = torch.randn(512, 8), torch.ones(512)
    weights[::5] = float("inf")  # in every batch
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for x, weight in DataLoader(TensorDataset(rows, weights), 32):
        loss = (model(x)[:, 0].square() * weight).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.long
def test_leaving_out_a_batch_shows_nothing_where_the_next_one_is_as_bad(tmp_path: Path) -> None:
    outcome = run_script(tmp_path, ALL_BAD, "--policy", "stop")
    (found,) = (outcome.run_dir / "incidents").glob("step-*")
    case = open_case(found)
    with Pool(found, keep=False) as pool:
        outcomes = list(pool.run([spec for name in ("unchanged", "drop-batch") for spec in specs_of(name, case)]))
    control, dropped = ([one for one in outcomes if one.spec.trial == name] for name in ("unchanged", "drop-batch"))
    verdict = trial("drop-batch").judge(case, control, dropped)
    assert (verdict.effect, verdict.why) == ("inconclusive", NEXT_IS_BAD), dropped
