"""Numbers that the script changes keep their old values on a replay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from changed_loops import BEGIN, EVERY, STEPS, _plain_process  # noqa: E402, F401 (an autouse fixture)
from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from replaying import record  # noqa: E402
from steadytrain.experiments.specs import Change  # noqa: E402
from trying import attempt, losses, trained  # noqa: E402

LINE = 'scores = model(rows[step]) / temperature  # "annealed"'
SETTINGS: list[dict[str, Any]] = [
    {"kind": "optimizer", "option": "weight_decay", "group": "0", "place": "0", "before": 0.0, "after": 30.0},
    {"kind": "module", "module": "1", "attribute": "negative_slope", "before": 0.1, "after": 9.0},
    {"kind": "operand", "function": "div", "argument": "1", "number": "1", "before": 0.5, "after": 1e-3},
]


def test_each_number_is_put_back(tmp_path: Path) -> None:
    raised = True

    def loop() -> None:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 3), nn.LeakyReLU(0.1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows, labels = torch.randn(STEPS, 8, 4), torch.randint(3, (STEPS, 8))
        for step in range(STEPS):
            late = raised and step >= BEGIN + 1
            temperature = 1e-3 if late else 0.5
            model[1].negative_slope = 9.0 if late else 0.1
            optimizer.param_groups[0]["weight_decay"] = 30.0 if late else 0.0
            scores = model(rows[step]) / temperature  # "annealed"
            loss = functional.cross_entropy(scores, labels[step])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    number = next(at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == LINE)
    settings = [json.dumps({**one, "line": f"{Path(__file__).name}:{number}: {LINE}"}) for one in SETTINGS]
    recording = record(loop, tmp_path / "run", every=EVERY)
    schedule = trained(*range(BEGIN + 1, STEPS + 1))
    mended = attempt(loop, recording, schedule, Change("old-settings", {"settings": settings}), begin=BEGIN)
    sick = attempt(loop, recording, schedule, begin=BEGIN)
    raised = False
    healthy = record(loop, tmp_path / "healthy", every=EVERY)
    sound = attempt(loop, healthy, schedule, begin=BEGIN)
    assert mended.ran, mended.why_not
    assert losses(mended) == losses(sound) != losses(sick)


MIX = "scores = share * model(rows[step]) + (1 - share) * fixed  # mixed"


def test_two_numbers_of_one_line_are_told_apart(tmp_path: Path) -> None:
    raised = True

    def loop() -> None:
        torch.manual_seed(0)
        model = nn.Linear(4, 3)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        rows, labels, fixed = torch.randn(STEPS, 8, 4), torch.randint(3, (STEPS, 8)), torch.randn(8, 3)
        for step in range(STEPS):
            share = 1.0 if raised and step >= BEGIN + 1 else 0.02
            scores = share * model(rows[step]) + (1 - share) * fixed  # mixed
            loss = functional.cross_entropy(scores, labels[step])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    number = next(at for at, line in enumerate(Path(__file__).read_text().splitlines(), 1) if line.strip() == MIX)
    line = f"{Path(__file__).name}:{number}: {MIX}"
    places = [
        {"kind": "operand", "function": "mul", "argument": "1", "number": one, "line": line} for one in ("1", "2")
    ]
    values = [{"before": 0.02, "after": 1.0}, {"before": 0.98, "after": 0.0}]
    settings = [json.dumps(place | value) for place, value in zip(places, values, strict=True)]
    recording = record(loop, tmp_path / "run", every=EVERY)
    schedule = trained(*range(BEGIN + 1, STEPS + 1))
    mended = attempt(loop, recording, schedule, Change("old-settings", {"settings": settings}), begin=BEGIN)
    sick = attempt(loop, recording, schedule, begin=BEGIN)
    raised = False
    sound = attempt(loop, record(loop, tmp_path / "healthy", every=EVERY), schedule, begin=BEGIN)
    assert mended.ran, mended.why_not
    assert losses(mended) == losses(sound) != losses(sick)
