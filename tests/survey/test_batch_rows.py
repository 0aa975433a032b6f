"""The rows of the batch at the onset: which, how much of them, in words where there are any, and safe to print."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from test_survey import recorded  # noqa: E402
from torch import Tensor  # noqa: E402

import builders  # noqa: E402
from steadytrain.core.incident import Samples  # noqa: E402
from steadytrain.diagnosis.answer import BatchRow, Diagnosis  # noqa: E402
from steadytrain.experiments.case import Case  # noqa: E402
from steadytrain.experiments.facts import facts_path  # noqa: E402
from steadytrain.replay.moved_files import Moved  # noqa: E402
from steadytrain.report import diagnosis_shown  # noqa: E402
from steadytrain.survey.launch import survey  # noqa: E402
from steadytrain.survey.outlier_rows import ROWS_MAX, TEXT_MAX, VALUES_MAX, Rows  # noqa: E402
from steadytrain.survey.token_texts import Found, found_now, words_of  # noqa: E402
from steadytrain.tracing.involved_rows import batch_rows  # noqa: E402
from trial_cases import finite_case  # noqa: E402

ESCAPE = "\x1b[31m\x9b2J\u202e"
SECRET = "hf_abcdefghijklmnopqrstuvwx"


@pytest.fixture(autouse=True)
def _no_tokenizer_of_another_test(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search goes through everything in the process."""
    monkeypatch.setattr("steadytrain.preflight_runs.subject_of_script.living", lambda *kinds: [])


def rows_of(named: dict[str, Tensor], target: Tensor | None = None, **facts: Any) -> list[dict[str, Any]]:
    rows = Rows()
    rows.called(9, named.items())
    rows.mark(target)
    return rows.finish(facts)["batch_rows"]


def case_with(**facts: Any) -> Case:
    return finite_case(facts=facts)


def test_a_row_has_a_few_values_and_its_ends() -> None:
    values = torch.arange(80.0).reshape(4, 20)
    values[2, 7] = math.nan
    (row,) = rows_of({"x": values}, batch_nonfinite=[{"step": 9, "input": "x", "rows": [2], "count": 1}])
    assert (row["row"], row["step"], row["tensor"], row["elements"], row["first"]) == (2, 9, "x", 20, 5)
    assert row["values"][:4] == [45.0, 46.0, "nan", 48.0]
    assert (row["smallest"], row["largest"], row["text"]) == (40.0, 59.0, None)


def test_what_is_kept_is_bounded() -> None:
    named = {f"input {at}": torch.zeros(500, 5000) for at in range(9)}
    found = rows_of(named, rows_suspect=list(range(500)), row_loss=[1.0] * 500)
    assert {row["row"] for row in found} == set(range(ROWS_MAX))
    assert max(len(row["values"]) for row in found) == VALUES_MAX
    assert len(found) <= 5 * ROWS_MAX
    assert len(json.dumps(found)) < 100_000


def test_rows_of_another_step_and_of_nothing_are_not_told() -> None:
    assert rows_of({"x": torch.zeros(4, 2)}, batch_nonfinite=[{"step": 3, "rows": [1]}]) == []
    assert rows_of({}, rows_suspect=[1]) == []
    assert rows_of({"x": torch.zeros(2, 2)}, rows_suspect=[7]) == []


def test_ids_outside_of_their_table_are_the_rows_of_that_fault() -> None:
    ids = torch.tensor([[1, 2], [3, 99], [0, 1]])
    found = rows_of({"ids": ids}, ids, tokens_out_of_range=1, token_rows=10)
    assert [(row["row"], row["tensor"], row["values"]) for row in found] == [
        (1, "ids", [3, 99]),
        (1, "target", [3, 99]),
    ]


def test_a_function_of_the_script_reads_them() -> None:
    def decode(ids: list[int]) -> str:
        return "".join(chr(97 + one) for one in ids)

    found = rows_of({"ids": torch.tensor([[7, 4, 11, 11, 14]])}, rows_suspect=[0])
    assert [row["text"] for row in found] == ["hello"]
    assert decode([0]) == "a"


def test_masks_positions_and_classes_are_no_text() -> None:
    def decode(ids: list[int]) -> str:
        return "".join(chr(97 + one) for one in ids)

    ids = torch.tensor([[7, 4, 11, 11, 14]])
    beside = {"mask": ids.gt(4).int(), "types": ids * 0, "positions": torch.arange(5)[None] + 2}
    found = rows_of({"ids": ids, **beside}, torch.tensor([3]), rows_suspect=[0])
    assert decode([7, 4]) == "he"
    assert {row["tensor"]: row["text"] for row in found} == {
        "ids": "hello",
        "mask": None,
        "types": None,
        "positions": None,
        "target": None,
    }


def test_a_table_of_the_script_reads_them_and_what_it_says_is_safe() -> None:
    itos = dict(enumerate(["a", ESCAPE, f" token={SECRET} ", "b" * 3000]))
    found = rows_of({"ids": torch.tensor([[0, 1, 2, 0], [3, 3, 3, 3]])}, rows_suspect=[0, 1])
    first, second = (str(row["text"]) for row in found)
    assert itos[0] == "a"
    assert first.startswith("a\\x1b[31m\\x9b2J\\u202e")
    assert SECRET not in first
    assert len(second) < TEXT_MAX + 50


def test_a_tokenizer_is_not_touched_before_the_end() -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[UNK]": 0, "the": 1, "row": 2}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.enable_truncation(5)
    found = found_now()
    assert found.tokenizer is tokenizer
    assert tokenizer.truncation is not None
    known = words_of(found)
    assert known is not None
    assert (known.kind, known.size, known.unknown, known.text([1, 2])) == ("Tokenizer", 3, 0, "the row")
    rows = Rows()
    rows.called(1, [("ids", torch.tensor([[1, 2], [0, 2]]))])
    rows.mark(None)
    facts = rows.finish({"rows_suspect": [1]})
    assert (facts["tokenizer"], facts["tokenizer_size"], facts["token_unknown_share"]) == ("Tokenizer", 3, 0.25)
    assert [row["text"] for row in facts["batch_rows"]] == ["[UNK] row"]


def test_nothing_reads_them() -> None:
    assert words_of(Found()) is None
    found = rows_of({"ids": torch.tensor([[7, 4]])}, rows_suspect=[0])
    assert [(row["values"], row["text"]) for row in found] == [([7, 4], None)]


def test_facts_of_a_stranger_are_made_safe() -> None:
    good = {"row": 1, "step": 90, "tensor": ESCAPE, "dtype": "int64", "elements": 2, "first": 0, "values": [1, ESCAPE]}
    odd = [None, 3, {}, {**good, "row": "many"}, {**good, "values": None}]
    (row,) = batch_rows(case_with(batch_rows=[*odd, {**good, "text": ESCAPE + SECRET, "loss": 7.5}]))
    told = json.dumps(row.to_json(), ensure_ascii=False)
    assert not any(mark in told for mark in (*ESCAPE[:1], "\x9b", "\u202e", SECRET))
    assert BatchRow.from_json(json.loads(told)) == row
    assert batch_rows(case_with(batch_rows="rows")) == ()
    assert batch_rows(case_with()) == ()


def test_a_row_is_named_by_its_place_in_the_data_set(tmp_path: Path) -> None:
    frozen = builders.incident(90, samples=(Samples(0, "Houses", (7, 9)),))
    told = {"step": 90, "tensor": "x", "dtype": "float32", "elements": 1, "first": 0, "values": [1.0]}
    case = finite_case(
        path=builders.write_bundle(tmp_path / "bundle", frozen),
        facts={"batch_rows": [{**told, "row": 1}, {**told, "row": 2}, {**told, "row": 1, "step": 89}]},
    )
    assert [row.sample for row in batch_rows(case)] == ["Houses[9]", None, None]


def answer(row: BatchRow) -> Diagnosis:
    return Diagnosis("incident", "loss-spike: 9", "exact", "", "unknown", None, "why", (), (), rows=(row,))


def test_a_report_has_a_line_for_each_row_and_each_of_its_tensors() -> None:
    row = BatchRow(3, 90, "ids", "int64", 64, 0, (17, 4), loss=7.125, text=f"a {ESCAPE}<b>")
    head, line = diagnosis_shown.part(answer(row)).texts
    assert head == "row 3 of step 90 (loss 7.125)"
    assert line.startswith('ids: "a \\x1b[31m')
    assert line.endswith('<b>" (17, 4 ... of 64)')
    values = BatchRow(0, 90, "0", "float32", 4, 1, (1.5, "nan"), smallest=-2.0, largest=8.0, sample="Houses[7]")
    head, line = diagnosis_shown.part(answer(values)).texts
    assert head == "row 0 of step 90, Houses[7]"
    assert line == "input 0: from 1 on: 1.5, nan ... of 4; -2 to 8"


def test_targets_that_are_the_text_of_the_input_are_not_printed_again() -> None:
    row = BatchRow(
        3, 90, "ids", "int64", 64, 0, (17, 4), text="the old cat sat on the mat by the door and looked at the moon"
    )
    targets = replace(row, tensor="target", text="old cat sat on the mat by the door and looked at the moon again")
    mask = BatchRow(3, 90, "mask", "float32", 64, 0, (0.0, 0.0), smallest=0.0, largest=0.0)
    other = replace(row, tensor="other", text="quite another text of about the same number of letters")
    shown = diagnosis_shown.part(replace(answer(row), rows=(row, targets, mask, other))).texts
    assert shown[2] == "target: the text of ids"
    assert shown[3] == "mask: all of 64 values are 0"
    assert "quite another" in shown[4]


def test_an_answer_from_before_there_were_rows_is_read() -> None:
    old = {**answer(BatchRow(0, 1, "x", "int64", 1, 0, (1,))).to_json(), "rows": {}}
    assert Diagnosis.from_json(old).rows == ()


SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
chars = list("abcdefgh ") + ["\\x1b", "Z"]
model = nn.Sequential(nn.Embedding(11, 16), nn.Linear(16, 11))
optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
for step in range(1, 61):
    ids = (torch.randint(8, (6, 1)) + torch.arange(9)) % 8
    if step == 50:
        ids[4] = torch.tensor([9, 10, 9, 10, 10, 9, 9, 10, 10])
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    if step == 50:
        loss = loss * float("nan")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.long
@pytest.mark.slow
def test_a_survey_tells_the_damaged_row_in_words(tmp_path: Path) -> None:
    run = recorded(tmp_path, SCRIPT)
    (bundle,) = [path for path in (run / "incidents").iterdir() if (path / "incident.json").is_file()]
    facts = survey(bundle, moved=Moved.parse("-"), wait_s=120, lead_s=60)
    assert facts["survey_notes"] == []
    assert facts["rows_suspect"] == [4]
    assert [(row["row"], row["step"], row["tensor"]) for row in facts["batch_rows"]] == [
        (4, 50, "0"),
        (4, 50, "target"),
    ]
    assert facts["batch_rows"][0]["values"] == [9, 10, 9, 10, 10, 9, 9, 10]
    assert facts["batch_rows"][0]["text"] == "\\x1bZ\\x1bZZ\\x1b\\x1bZ"
    written = facts_path(bundle).read_text(encoding="utf-8")
    assert not any(mark in written for mark in ("\x1b", "\\u001b"))
