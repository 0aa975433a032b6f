"""An index outside its table leaves the value, its row, its place in the data set, and what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

import steadytrain  # noqa: E402
from scripts import call, run_script  # noqa: E402
from steadytrain.capture.incident.crash import Moment, evidence_of, write_evidence  # noqa: E402
from steadytrain.capture.incident.crash.index_range import Tables, tables_of  # noqa: E402
from steadytrain.capture.step.sample_indices import DrawnSamples  # noqa: E402
from steadytrain.core.incident import Samples  # noqa: E402
from steadytrain.diagnosis.cause import CERTAIN  # noqa: E402
from steadytrain.diagnosis.cause_catalog import causes  # noqa: E402
from steadytrain.experiments.crash_facts import facts_of_crash  # noqa: E402
from steadytrain.storage.run_folder import Run  # noqa: E402
from trial_cases import finite_case  # noqa: E402

LABELS = torch.tensor([0, 3, 45, -100])
IDS = torch.tensor([[0, 1], [2, 7]])


def flattened() -> None:
    functional.cross_entropy(torch.randn(4, 10), LABELS)


def looked_up() -> None:
    functional.embedding(IDS, torch.randn(7, 2))


def one_hot() -> None:
    labels, classes = torch.tensor([1, 4, 2]), 4
    functional.one_hot(labels, classes)


def gathered() -> None:
    index = torch.tensor([[1], [12]])
    torch.randn(2, 10).gather(1, index)


def indexed() -> None:
    rows = torch.tensor([1, 12])
    torch.randn(10)[rows]


def documents(call: Callable[[], None], **known: Any) -> dict[str, dict[str, Any]]:
    try:
        call()
    except Exception as error:
        return evidence_of(error, Moment("now", 0.0, step=3, **known), disk=Path("/tmp"))
    raise AssertionError("it raised nothing")


@pytest.mark.parametrize(
    ("call", "what", "value", "row", "largest"),
    [
        (flattened, "label", 45, 2, 9),
        (looked_up, "token", 7, 1, 6),
        (one_hot, "label", 4, 1, 3),
        (gathered, "index", 12, 1, 9),
        (indexed, "index", 12, 1, 9),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_the_value_and_its_row(call: Callable[[], None], what: str, value: int, row: int, largest: int) -> None:
    found = documents(call)["index-out-of-range"]
    assert (found["what"], found["allowed"]) == (what, [0, largest])
    assert [(one["value"], one["row"]) for one in found["rows"]] == [(value, row)]


def test_a_flattened_target_is_cut_into_the_rows_of_the_batch() -> None:
    known = {"rows": 2, "drawn": (Samples(0, "Texts", (8, 9)),)}
    (one,) = documents(flattened, **known)["index-out-of-range"]["rows"]
    assert one == {"row": 1, "position": 0, "value": 45, "sample": "Texts[9]"}


def on_a_gpu() -> None:
    raise RuntimeError("CUDA error: device-side assert triggered")


def of_a_list() -> None:
    [1, 2][3]


def elsewhere() -> None:
    raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")


def test_a_device_says_neither_value_nor_row() -> None:
    found = documents(on_a_gpu)["index-out-of-range"]
    assert found["rows"] == []
    assert found["allowed"] is None
    assert found["late"]


MODEL = torch.nn.Sequential(torch.nn.Embedding(50, 4), torch.nn.Flatten(), torch.nn.Linear(8, 10))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ([torch.tensor([[1, 2], [3, 50]]), torch.tensor([1, 2])], ("token", 50, 1)),
        ([torch.tensor([[1, 2], [3, 4]]), torch.tensor([-100, 3, -1])], ("label", -1, 2)),
        ([torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 20])], None),  # within the table of ids: it cannot be told
        ([torch.randn(2, 2) * 1000], None),
        ([], None),
    ],
)
def test_what_the_loaders_gave_on_the_host_is_compared_with_all_tables(
    given: list[torch.Tensor], told: tuple[str, int, int] | None, tmp_path: Path
) -> None:
    all_documents = documents(on_a_gpu, given=given, tables=tables_of([MODEL]))
    found = all_documents["index-out-of-range"]
    assert [(found["what"], one["value"], one["row"]) for one in found["rows"][:1]] == ([told] if told else [])
    assert tables_of([MODEL]) == Tables(rows=50, classes=10)
    (line,) = write_evidence(tmp_path, all_documents)
    assert "CUDA_LAUNCH_BLOCKING=1 shows the line" in line
    assert (f"{found['what']} {told[1]} in row {told[2]} is not within 0 to 49" in line) if told else "row" not in line
    facts = facts_of_crash(folder_of(tmp_path))["index_outside"]
    assert facts["line"] is None, "the line at which a GPU tells it is not the one that did it"


@pytest.mark.parametrize("call", [of_a_list, elsewhere], ids=lambda one: one.__name__)
def test_other_errors_leave_nothing(call: Callable[[], None]) -> None:
    assert documents(call) == {}


def folder_of(path: Path) -> Run:
    """A run of which only the folder is read."""
    run: Run = type("Folder", (Run,), {"__init__": lambda self: None})()
    object.__setattr__(run, "path", path)
    object.__setattr__(run, "facts", {})
    return run


def test_the_diagnosis_names_the_row_and_a_damaged_file_nothing(tmp_path: Path) -> None:
    (line,) = write_evidence(tmp_path, documents(flattened))
    assert "an index is outside its table" in line
    run = folder_of(tmp_path)
    facts = facts_of_crash(run)
    (sign,) = (
        one for one in causes()["token-out-of-range"].signature(finite_case(facts=facts)).signs if one.weight >= CERTAIN
    )
    assert sign.invariant
    assert sign.what.startswith("label 45 in row 2 is not within 0 to 9 at test_crash_index.py:")
    (tmp_path / "evidence" / "index-out-of-range.json").write_text('{"schema": "steadytrain.index-out-of-range/1"}')
    assert facts_of_crash(run) == {}
    assert facts_of_crash(None) == {}


def normed() -> None:
    torch.nn.BatchNorm1d(3)(torch.ones(1, 3))


def instance_normed() -> None:
    torch.nn.InstanceNorm2d(3)(torch.ones(2, 3, 1, 1))


@pytest.mark.parametrize(
    ("call", "rows", "who"), [(normed, 1, "a batch of one row"), (instance_normed, 2, "one value a channel")]
)
def test_a_norm_over_one_value_names_the_batch(tmp_path: Path, call: Callable[[], None], rows: int, who: str) -> None:
    (line,) = write_evidence(tmp_path, documents(call, rows=rows))
    assert "one value a channel" in line
    run = folder_of(tmp_path)
    facts = facts_of_crash(run)
    signs = causes()["normalization-misuse"].signature(finite_case(facts=facts)).signs
    (sign,) = [one for one in signs if one.weight >= CERTAIN]
    assert sign.what.startswith(f"a norm in training mode got {who} at test_crash_index.py:")


FAILS_LATE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 10))

    def forward(self, inputs):
        return self.layers(inputs)

torch.manual_seed(0)
labels = torch.randint(0, 10, (320,))
labels[37] = 10
model = Net()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for inputs, target in DataLoader(TensorDataset(torch.randn(320, 8), labels), 32):
    bad = bool((target > 9).any())
    target = target.clamp(max=9)
    loss = nn.functional.cross_entropy(model(inputs), target)
    optimizer.zero_grad()
    loss.backward()
    if bad:  # as a GPU does it
        raise RuntimeError("CUDA error: device-side assert triggered")
    optimizer.step()
"""


@pytest.mark.slow
def test_a_script_on_a_device_is_told_the_row_of_its_loader(tmp_path: Path) -> None:
    seen = run_script(tmp_path, FAILS_LATE)
    assert seen.status == 1
    assert "(label 10 in row 5 is not within 0 to 9; a GPU reports this late: CUDA_LAUNCH_BLOCKING=1" in seen.told
    found = json.loads(call("diagnose", tmp_path / "runs" / "run", "--json", folder=tmp_path).stdout)
    assert (found["verdict"], found["status"]) == ("token-out-of-range", "likely")
    assert found["diagnoses"][0]["batch_rows"] == [5]


def test_evidence_needs_no_batch_that_a_failed_gpu_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(*_: object) -> None:
        raise RuntimeError("CUDA error: device-side assert triggered")

    monkeypatch.setattr(DrawnSamples, "samples_of", unreadable)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def trains() -> None:
        with steadytrain.watch(model, optimizer, runs_dir=tmp_path, name="run", to=("none",)):
            for _ in range(3):
                model(torch.randn(4, 3)).sum().backward()
                optimizer.step()
            model(torch.randn(4, 3)).sum().backward()
            unreadable()

    with pytest.raises(RuntimeError, match="device-side assert"):
        trains()
    found = json.loads((tmp_path / "run" / "evidence" / "index-out-of-range.json").read_text())
    assert (found["late"], found["rows"]) == (True, [])
