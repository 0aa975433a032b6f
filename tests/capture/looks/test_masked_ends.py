"""Fine-tuning in which padding has the id of the end, with the end masked or learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from steadytrain.capture.looks.end_padding import end_as_padding
from steadytrain.capture.looks.script_reading import mistakes
from watching import watching

SCRIPTS = Path(__file__).parents[2] / "fixtures" / "ends"


def told(folder: Path, script: str, pad: str = "PAD_ID = EOS_ID") -> list[str]:
    """What is told of masked ends in ``script``, whose padding is made by the line ``pad``."""
    source = (SCRIPTS / script).read_text().replace("PAD_ID = EOS_ID", pad)
    path = folder / script
    path.write_text(source)
    with watching(folder / "run", "observe") as watcher:
        exec(compile(source, str(path), "exec"), {"__name__": "__main__", "__file__": str(path)})
    return [f"{one.severity} {one.message}" for one in watcher.symptoms if one.name == "masked-end"]


@pytest.mark.parametrize(
    ("pad", "masks", "count"),
    [
        ("PAD_ID = EOS_ID", "by id", 1),
        ("PAD_ID = EOS_ID", "by length", 0),
        ("PAD_ID = EOS_ID", "packed", 0),
        ("PAD_ID = 1", "by id", 0),
    ],
)
def test_a_loop_of_its_own(pad: str, masks: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASKS", masks)
    found = told(tmp_path, "plain_lm.py", pad)
    assert len(found) == count
    assert all(
        one.startswith("warning the end token (eos), id 0, ends every row") and "plain_lm.py:12" in one for one in found
    )


@pytest.mark.parametrize(("masks", "limit", "count"), [("by id", 15, 1), ("by length", 15, 0), ("by id", 8, 0)])
def test_rows_that_are_cut_before_their_end(
    masks: str, limit: int, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MASKS", masks)
    monkeypatch.setenv("LIMIT", str(limit))
    assert len(told(tmp_path, "plain_lm.py")) == count


@pytest.mark.parametrize(
    ("how", "count"),
    [
        *(("pad is eos", 1), ("fixed", 1), ("left", 1)),
        *(("own pad", 0), ("labels by length", 0), ("no end", 0), ("fixed, no end", 0)),
    ],
)
def test_a_collator(how: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HOW", how)
    found = told(tmp_path, "collator_lm.py")
    assert len(found) == count
    assert all("PreTrainedTokenizerFast" in one or "tokenizer" in one for one in found)


def test_a_classifier(tmp_path: Path) -> None:
    assert told(tmp_path, "classifier.py") == []


MASKED = "labels[labels == PAD] = -100"


@pytest.mark.parametrize(
    ("source", "line"),
    [
        (f"PAD = EOS\n{MASKED}", 1),
        (f"PAD = EOS = 0\n{MASKED}", 1),
        ("EOS = 2\nPAD = 2\nlabels.masked_fill(ids == PAD, -100)", 2),
        ("tokenizer.pad_token = tokenizer.eos_token\nDataCollatorForLanguageModeling(tokenizer, mlm=False)", 1),
        ("self.pad_id = self.eos_id\nloss = F.cross_entropy(scores, labels, ignore_index=self.pad_id)", 1),
        ("ids = pad_sequence(rows, padding_value=EOS)\nlabels = torch.where(ids == EOS, -100, ids)", 1),
        (f"PAD = EOS + 1\n{MASKED}", None),
        (f"PAD = 0\nEOS = 1\n{MASKED}", None),
        ("PAD = EOS\nlabels[lengths:] = -100", None),
    ],
)
def test_what_is_read_in_a_source(source: str, line: int | None) -> None:
    found = [at for rule, at in mistakes(source, {}) if rule == "end-as-padding"]
    assert found == ([line] if line is not None else [])
    assert end_as_padding.__doc__


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("ids = text + [EOS]", 1),
        ("ids = []\nids.append(tokenizer.eos_token_id)", 2),
        ("src[i, k] = tgt[i, k] = EOS", 1),
        ("PAD = EOS", None),
        ("ids = torch.full((4, 8), EOS)\nstop = ids == EOS", None),
    ],
)
def test_an_end_that_is_put_in(source: str, line: int | None) -> None:
    found = [at for rule, at in mistakes(f"PAD = 0\nids == PAD\n{source}", {}) if rule == "end-put-in"]
    assert found == ([line + 2] if line is not None else [])
