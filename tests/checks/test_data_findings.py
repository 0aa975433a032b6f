"""Each check of data sees what it is for, and is quiet on data that looks alike and is well."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from tabular import WORDS, looked, report_of, sentences, texts, word_tokenizer

from steadytrain.checks.data.data_check import DATA_CHECK_PAGES, Circumstances, Judgement, Status
from steadytrain.checks.data.data_pass import check_classes, check_name

TEXT = sentences(400)


@dataclass(frozen=True)
class Case:
    """Rows on which ``check`` must answer ``status``, for a reason whose words hold ``says``."""

    check: str
    status: Status
    rows: Callable[[], Sequence[Any]]
    says: str = ""
    given: dict[str, Any] = field(default_factory=dict)
    tokenized: bool = False


def with_labels(change: Callable[[int, list[int], list[int]], list[int]], rows: int = 100) -> Callable[[], list[Any]]:
    """Rows of ids 4 to 20 that end in 2, padded by 3 to 40, with the labels that ``change`` makes of right ones."""

    def make() -> list[Any]:
        rng = random.Random(1)
        made = []
        for number in range(rows):
            ids = [1, *rng.choices(range(4, 20), k=rng.randint(5, 30)), 2]
            padded = ids + [3] * (40 - len(ids))
            right = [-100] * 3 + ids[3:] + [-100] * (40 - len(ids))
            mask = [1] * len(ids) + [0] * (40 - len(ids))
            made.append({"input_ids": padded, "labels": change(number, padded, right), "attention_mask": mask})
        return made

    return make


def right(number: int, ids: list[int], labels: list[int]) -> list[int]:
    return labels


def without_ends(number: int, ids: list[int], labels: list[int]) -> list[int]:
    return [-100 if label == 2 else label for label in labels]


def table(change: Callable[[np.ndarray[Any, Any]], None], rows: int = 300) -> Callable[[], list[Any]]:
    def make() -> list[Any]:
        values = np.random.default_rng(0).normal(size=(rows, 3))
        change(values)
        return [{"a": a, "b": b, "c": c, "label": int(a > 0)} for a, b, c in values.tolist()]

    return make


def scaled(column: int, *, by: float = 1.0, plus: float = 0.0) -> Callable[[np.ndarray[Any, Any]], None]:
    def change(values: np.ndarray[Any, Any]) -> None:
        values[:, column] = values[:, column] * by + plus

    return change


def placed(value: float) -> Callable[[np.ndarray[Any, Any]], None]:
    def change(values: np.ndarray[Any, Any]) -> None:
        values[7, 1] = value

    return change


def labelled(labels: Sequence[Any]) -> list[Any]:
    return [{"text": text, "label": label} for text, label in zip(TEXT, labels, strict=True)]


def pairs(prompt_words: int, answer_words: int) -> list[Any]:
    rng = random.Random(0)
    return [
        {
            "prompt": " ".join(rng.choices(WORDS, k=prompt_words)) + " ",
            "completion": " ".join(rng.choices(WORDS, k=answer_words)),
        }
        for _ in range(100)
    ]


def shuffled(rows: list[Any]) -> list[Any]:
    random.Random(3).shuffle(rows)
    return rows


CASES = [
    # Healthy look-alikes first: what must stay quiet.
    Case("broken-rows", "pass", lambda: texts(TEXT)),
    Case("other-fields", "pass", lambda: [{"x": 1, "y": 2.5}, {"y": 3, "x": 0}]),
    Case("empty-rows", "pass", lambda: texts([*TEXT, "."])),
    Case("exact-duplicates", "pass", lambda: texts([*TEXT, TEXT[0] + "."])),
    Case("exact-duplicates", "pass", lambda: texts(["", *TEXT, ""])),
    Case("exact-duplicates", "pass", lambda: [{"text": text, "label": place} for place in (0, 1) for text in TEXT]),
    Case("repeated-ngrams", "pass", lambda: texts([*TEXT, "kan lop " * 31]), tokenized=True),
    Case("row-order", "pass", lambda: labelled(shuffled([0, 1] * 200))),
    Case("row-order", "pass", lambda: labelled([0, 1] * 200)),
    Case("label-balance", "pass", lambda: labelled([0] * 300 + [1] * 100), "0.5623"),
    Case("ids-in-range", "pass", with_labels(right), given={"vocabulary": 20}),
    Case("supervised-tokens", "pass", with_labels(right)),
    Case("supervised-tokens", "pass", lambda: pairs(10, 10), given={"length": 30}, tokenized=True),
    Case("pad-in-labels", "pass", with_labels(right), tokenized=True),
    Case("end-in-labels", "pass", with_labels(right), tokenized=True),
    Case("truncation", "pass", lambda: texts(TEXT), given={"length": 64}, tokenized=True),
    Case("length-explosion", "pass", lambda: texts([*TEXT, "ka " * 600])),
    Case("unknown-tokens", "pass", lambda: texts(TEXT), tokenized=True),
    Case("double-bos", "pass", lambda: texts(TEXT), tokenized=True),
    Case("double-bos", "pass", lambda: texts(["kan <s> <s> lop"] * 3), tokenized=True),
    Case("tokenizer-round-trip", "pass", lambda: texts(text.replace(" ", "  ") for text in TEXT), tokenized=True),
    Case("bytes-per-token", "pass", lambda: texts(TEXT), tokenized=True),
    Case("text-encoding", "pass", lambda: texts(["für die Straße, naïve café, 東京, 🙂 \u2018quoted\u2019"] * 20)),
    Case("control-characters", "pass", lambda: texts(["a\tb\nc\r\n\x1b[0m"] * 20)),
    Case("escaped-text", "pass", lambda: texts(["print('\\n') & more", *TEXT])),
    Case("leaked-rows", "not-run", lambda: texts(TEXT), "--against"),
    Case("supervised-tokens", "not-run", lambda: texts(TEXT), "no labels by token", tokenized=True),
    Case("nonfinite-features", "pass", table(scaled(0))),
    Case("nonfinite-features", "pass", lambda: [{"a": 1.5, "b": None}, {"a": 2.0, "b": 1.0}]),
    Case("feature-scale", "pass", table(scaled(0, by=50.0))),
    Case("token-frequencies", "pass", lambda: texts(TEXT), tokenized=True),
    # And what must be seen.
    Case("broken-rows", "fail", lambda: Failing(), "3 of 40"),
    Case("other-fields", "fail", lambda: [*texts(TEXT), {"text": 3}], "number, where others have text"),
    Case("other-fields", "warn", lambda: [*texts(TEXT), {"text": "x", "more": 1}], "with more besides"),
    Case("other-fields", "warn", lambda: [*texts(TEXT), {"text": None}], "null"),
    Case("empty-rows", "warn", lambda: texts([*TEXT, " \n"]), "1 of 401"),
    Case("empty-rows", "fail", lambda: texts([*TEXT[:50], ""]), "1 of 51"),
    Case("exact-duplicates", "warn", lambda: texts([*TEXT, *TEXT[:20]]), "20 of 420"),
    Case("exact-duplicates", "fail", lambda: texts([*TEXT, *TEXT]), "400 of 800"),
    Case("repeated-ngrams", "warn", lambda: texts([*TEXT, "kan lop " * 40]), "1 of 401"),
    Case("repeated-ngrams", "warn", lambda: texts([*TEXT, "kan lop " * 40]), "1 of 401", tokenized=True),
    Case("repeated-ngrams", "fail", lambda: texts([*TEXT, *["kan lop " * 400] * 2]), "2 of 402"),
    Case("row-order", "warn", lambda: labelled([0] * 200 + [1] * 200), "label (runs of up to 200"),
    Case("row-order", "warn", lambda: texts(sorted(TEXT, key=len)), "length"),
    Case("row-order", "warn", lambda: [{"text": t, "source": f"s{p // 100}"} for p, t in enumerate(TEXT)], "source"),
    Case("label-balance", "fail", lambda: labelled(["yes"] * 400), "'yes'"),
    Case("label-balance", "warn", lambda: labelled([0] * 390 + [1] * 10), "97.5%"),
    Case("label-balance", "warn", lambda: labelled([0] * 300 + [1] * 99 + [None]), "1 row without a label; 2 classes"),
    Case("ids-in-range", "fail", with_labels(right), "not below 19", {"vocabulary": 19}),
    Case("ids-in-range", "fail", with_labels(lambda n, i, labels: [-1, *labels[1:]]), "below 20", {"vocabulary": 20}),
    Case("ids-in-range", "fail", lambda: [{"input_ids": [7, 0] * 50}] * 20, "32 bits were read as 16"),
    Case("supervised-tokens", "fail", with_labels(lambda n, i, labels: [-100] * 40 if n < 9 else labels), "9 of 100"),
    Case("supervised-tokens", "warn", with_labels(lambda n, i, labels: [-100] * 40 if n < 1 else labels), "1 of 100"),
    Case("supervised-tokens", "fail", lambda: pairs(40, 10), "100 of 100", {"length": 30}, True),
    Case("supervised-tokens", "fail", with_labels(lambda n, i, labels: labels[:-1]), "another number of labels"),
    Case("pad-in-labels", "fail", with_labels(lambda n, ids, labels: ids), "padding", tokenized=True),
    Case(
        "end-in-labels", "fail", with_labels(lambda n, i, ls: [-100 if x == 2 else x for x in ls]), "no label", {}, True
    ),
    Case("truncation", "warn", lambda: texts(TEXT), "cut", {"length": 16}, True),
    Case("length-explosion", "warn", lambda: texts([*TEXT, "ka " * 6000]), "; the longest has 18,000"),
    Case("unknown-tokens", "fail", lambda: texts([text + " zzz" for text in TEXT]), "unknown", tokenized=True),
    Case("double-bos", "fail", lambda: texts(["<s> " + text for text in TEXT]), "400 of 400", tokenized=True),
    Case("tokenizer-round-trip", "fail", lambda: texts([text + " zzz" for text in TEXT]), "lose", tokenized=True),
    Case("bytes-per-token", "warn", lambda: texts(["a b c d e f"] * 300), "", {"vocabulary": 32000}, True),
    Case("text-encoding", "fail", lambda: texts(["f\u00c3\u00bcr die Stra\ufffde"] * 20), "20"),
    Case("text-encoding", "fail", lambda: texts(["don\u00e2\u20ac\u2122t", *TEXT[:20]]), "1 look"),
    Case("control-characters", "fail", lambda: texts(["a\x00b"] * 20)),
    Case("escaped-text", "fail", lambda: texts([text.replace(" ", "\\n") for text in TEXT])),
    Case("nonfinite-features", "fail", table(placed(float("nan"))), "b (1 rows)"),
    Case("nonfinite-features", "fail", table(placed(float("inf"))), "b (1 rows)"),
    Case("feature-scale", "warn", table(scaled(1, by=1e6)), "out of scale: b"),
    Case("feature-scale", "warn", table(scaled(1, by=0.0, plus=2.0)), "constant: b"),
    Case("feature-scale", "warn", table(scaled(1, plus=900.0)), "far from zero"),
    Case("token-frequencies", "warn", lambda: [{"input_ids": [0] * 60 + [1, 2, 3, 4] * 10}] * 20, "token 0"),
]


class Failing:
    """A dataset that raises for some of its rows."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, place: int) -> dict[str, str]:
        if place % 15 == 7:
            raise OSError("truncated image file")
        return {"text": TEXT[place]}


def judged(case: Case) -> Judgement:
    rows = case.rows()
    given = dict(case.given)
    if case.tokenized:
        given["tokenizer"] = word_tokenizer()
    if isinstance(rows, Failing):
        from steadytrain.checks.data.data_pass import look_with
        from steadytrain.checks.data.sources import Wanted, of_object

        known = Circumstances()
        checks = [cls(known) for cls in check_classes() if check_name(cls) == case.check]
        return look_with(checks, of_object(rows, name="rows"), Wanted("rows"), known).findings[0].judgement
    return looked(rows, case.check, **given)


@pytest.mark.parametrize("case", CASES, ids=[f"{case.check}-{case.status}-{n}" for n, case in enumerate(CASES)])
def test_what_a_check_says(case: Case) -> None:
    judgement = judged(case)
    assert judgement.status == case.status, judgement.message
    assert case.says in judgement.message


def test_every_check_has_rows_that_it_names_and_rows_that_it_does_not() -> None:
    names = {check_name(cls) for cls in check_classes() if not cls.compares}
    seen = {case.check for case in CASES if case.status in ("warn", "fail")}
    quiet = {case.check for case in CASES if case.status == "pass"}
    assert seen == names
    assert quiet == names


@pytest.mark.parametrize("cls", check_classes(), ids=[check_name(cls) for cls in check_classes()])
def test_a_check_says_what_it_means_and_what_to_do(cls: type) -> None:
    page = DATA_CHECK_PAGES.of(cls)
    assert page.summary.endswith(".")
    assert page.sections["means"]
    assert page.sections["next"]


def test_plain_text_raises_no_finding_of_any_check() -> None:
    tokenizer = word_tokenizer()
    report = report_of(texts(TEXT), Circumstances(tokenizer, tokenizer.size, 64))
    assert report.status == "pass"
    assert not report.of_status("warn")
    lacking = {check_name(cls) for cls in check_classes() if not {"texts", "tokens"}.issuperset(cls.reads)}
    of_themselves = {case.check for case in CASES if case.status == "not-run"}
    assert {finding.check for finding in report.of_status("not-run")} == lacking | of_themselves


def test_examples_name_the_row_its_id_and_its_decoded_text() -> None:
    rows = [{"id": f"doc-{place}", "input_ids": [1, 4 + place % 8, 5]} for place in range(30)]
    rows[11]["input_ids"] = [1, 4, 99]
    judgement = looked(rows, "ids-in-range", tokenizer=word_tokenizer())
    (example,) = judgement.examples
    assert (example.row, example.place, example.identity) == (11, "rows[11]", "doc-11")
    assert example.text.startswith("<s> kan")
    assert example.why == "id out of range"


def test_padding_that_is_the_end_is_told_apart_by_the_mask() -> None:
    made = with_labels(right)()
    tokenizer = word_tokenizer(pad="</s>")
    for row in made:
        row["input_ids"] = [2 if token == 3 else token for token in row["input_ids"]]
    assert looked(made, "pad-in-labels", tokenizer=tokenizer).status == "pass"
    for row in made:
        row["labels"] = list(row["input_ids"])
    assert looked(made, "pad-in-labels", tokenizer=tokenizer).status == "fail"
    for row in made:
        del row["attention_mask"]
    assert looked(made, "pad-in-labels", tokenizer=tokenizer).status == "fail"


def test_a_conversation_is_cut_before_its_first_answer() -> None:
    question = {"role": "user", "content": " ".join(WORDS[:20])}
    rows = [{"messages": [question, {"role": "assistant", "content": "kan lop"}]}] * 30
    tokenizer = word_tokenizer()
    assert looked(rows, "supervised-tokens", tokenizer=tokenizer, length=24).status == "pass"
    assert looked(rows, "supervised-tokens", tokenizer=tokenizer, length=21).status == "fail"


def test_a_small_vocabulary_may_have_a_byte_a_token() -> None:
    rows = texts(["a b c d e f"] * 300)
    assert looked(rows, "bytes-per-token", tokenizer=word_tokenizer(), vocabulary=100).status == "pass"
