"""Samples that are made again with safe operations, and where that trial runs in place of a replay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from steadytrain.core.incident import BATCH_IS_BAD, Finding
from steadytrain.experiments.case import Case
from steadytrain.experiments.specs import NotApplicable
from steadytrain.experiments.trial_catalog import trial
from steadytrain.trial_runs.changes.singular_points import SafeSamples
from steadytrain.trial_runs.launched_script import Launched
from trial_cases import finite_case

ROWS = torch.rand(12, 5, generator=torch.Generator().manual_seed(1))
ROWS[7] = 0.5


class Standardized(Dataset[Tensor]):
    """Row 7 is constant, and its deviation 0. Each read draws, as an augmentation does."""

    def __len__(self) -> int:
        return len(ROWS)

    def __getitem__(self, index: int) -> Tensor:
        row = ROWS[index]
        return (row - row.mean()) / row.std() + 0.1 * torch.rand(())


class WithNumpy(Standardized):
    def __getitem__(self, index: int) -> Tensor:
        row = ROWS[index].numpy()
        with np.errstate(invalid="ignore"):
            return torch.from_numpy((row - row.mean()) / row.std())


class Broken(Standardized):
    """Its rows are NaN as they are stored: no operation made it."""

    def __getitem__(self, index: int) -> Tensor:
        return ROWS[index] * (torch.nan if index == 7 else 1.0) / ROWS[index].std().clamp(min=1e-3)


def normed(rows: Sequence[Tensor]) -> Tensor:
    batch = torch.stack(list(rows)) - 0.5
    return batch / batch.norm(dim=1, keepdim=True)


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> SafeSamples:
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    for kind in (Standardized, WithNumpy, Broken):
        monkeypatch.setattr(kind, "__getitem__", vars(kind)["__getitem__"])
    made = SafeSamples()
    made.early(Launched())
    return made


def read(dataset: Any, **options: Any) -> Tensor:
    torch.manual_seed(3)
    return torch.cat(list(DataLoader(dataset, batch_size=4, **options)))


def test_a_sample_of_a_data_set_is_made_again_and_all_others_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = read(Standardized())
    assert torch.isnan(plain[7]).all()
    monkeypatch.setattr(DataLoader, "__iter__", DataLoader.__iter__)
    monkeypatch.setattr(Standardized, "__getitem__", Standardized.__getitem__)
    made = SafeSamples()
    made.early(Launched())
    safe = read(Standardized())
    assert made.touched == 1
    assert torch.isfinite(safe).all()
    others = [row for row in range(12) if row != 7]
    assert torch.equal(safe[others], plain[others]), "the random numbers of the rows after it are those of before"


def test_a_batch_of_a_collate_function_is_made_again(change: SafeSamples) -> None:
    assert torch.isfinite(read(list(ROWS), collate_fn=normed)).all()
    assert change.touched == 1


@pytest.mark.parametrize("kind", [WithNumpy, Broken])
def test_what_no_operation_of_torch_made_stays(change: SafeSamples, kind: type[Standardized]) -> None:
    assert torch.isnan(read(kind())[7]).any()
    assert not change.touched


def planned(case: Case) -> str:
    plan = trial("safe-operation").plan(case)
    assert not isinstance(plan, NotApplicable)
    return plan[0].changes[0].kind


def test_the_trial_makes_samples_again_only_where_the_loader_gave_the_value() -> None:
    made = [{"operation": "div", "line": "train.py:9", "step": 100, "made": "NaN", "rows": [], "before_model": True}]
    case = replace(finite_case(), onset=100, step=100, of_loader=True, facts={"nonfinite_made": made})
    came = Finding(None, f"{BATCH_IS_BAD} NaN: args[0]")
    assert planned(replace(case, finding=came)) == "safe-samples"
    for other in (
        replace(case, finding=None),
        replace(case, finding=came, of_loader=False),
        replace(case, finding=came, facts={"nonfinite_made": [{**made[0], "before_model": False}]}),
        replace(case, finding=came, facts={}),
    ):
        assert planned(other) == "safe-operation"
