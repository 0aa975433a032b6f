"""The same rows out of every format, and one line for each file that cannot be read."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tabular import sentences

from steadytrain.checks.data import Report, Wanted, look_at
from steadytrain.checks.data.data_check import Circumstances, Options
from steadytrain.checks.data.sources import formats, open_source
from steadytrain.core.errors import UsageError

TEXTS = [*sentences(2500, seed=4, least=2, most=9), 'quoted "words", and\na line']
ROWS = [{"id": place, "text": text, "label": place % 3} for place, text in enumerate(TEXTS)]


def json_lines(path: Path) -> Path:
    path = path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    return path


def packed(path: Path) -> Path:
    plain = json_lines(path)
    path = path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()
    return path


def comma_separated(path: Path) -> Path:
    path = path / "rows.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ["id", "text", "label"])
        writer.writeheader()
        writer.writerows(ROWS)
    return path


def parquet(path: Path) -> Path:
    import pyarrow
    import pyarrow.parquet

    path = path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path, row_group_size=700)
    return path


def arrow(path: Path) -> Path:
    import pyarrow

    path, table = path / "rows.arrow", pyarrow.Table.from_pylist(ROWS)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=900)
    return path


def feather(path: Path) -> Path:
    import pyarrow

    path, table = path / "rows.feather", pyarrow.Table.from_pylist(ROWS)
    with pyarrow.OSFile(str(path), "wb") as file, pyarrow.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=900)
    return path


def shards(path: Path) -> Path:
    folder = path / "shards" / "deeper"
    folder.mkdir(parents=True)
    for place in range(0, len(ROWS), 900):
        lines = "".join(json.dumps(row) + "\n" for row in ROWS[place : place + 900])
        (folder / f"part-{place:06}.jsonl").write_text(lines, encoding="utf-8")
    (folder / "README.md").write_text("not data")
    return path / "shards"


MAKERS = [json_lines, packed, comma_separated, parquet, arrow, feather, shards]


def read(path: Path, limit: int | None = None, **options: Any) -> list[Any]:
    source = open_source(Wanted(str(path), limit, options=Options(**options)))
    return [row for block in source.rows(lambda name, done, size: None) for row in block]


@pytest.mark.parametrize("maker", MAKERS, ids=[maker.__name__ for maker in MAKERS])
def test_the_same_rows_come_out(maker: Callable[[Path], Path], tmp_path: Path) -> None:
    rows = read(maker(tmp_path))
    assert [dict(row.fields) for row in rows] == ROWS
    assert [row.number for row in rows] == [*range(len(ROWS))]


@pytest.mark.parametrize("maker", MAKERS, ids=[maker.__name__ for maker in MAKERS])
def test_the_limit_is_kept(maker: Callable[[Path], Path], tmp_path: Path) -> None:
    assert [row.number for row in read(maker(tmp_path), limit=1234)] == [*range(1234)]


def test_a_saved_dataset_comes_in_the_order_of_its_index(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    made = datasets.Dataset.from_list(ROWS)
    made.shuffle(seed=1).save_to_disk(str(tmp_path / "shuffled"))
    expected = [row["id"] for row in made.shuffle(seed=1)]
    assert [row.fields["id"] for row in read(tmp_path / "shuffled")] == expected
    datasets.DatasetDict(test=made.select(range(5)), train=made).save_to_disk(str(tmp_path / "splits"))
    assert len(read(tmp_path / "splits")) == len(ROWS)
    assert len(read(tmp_path / "splits" / "test")) == 5
    assert open_source(Wanted(str(tmp_path / "splits"))).notes == ("Of the splits test, train, train is looked at.",)


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "int32"])
def test_tokens_of_a_raw_file_are_cut_to_the_length(dtype: str, tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(0, 5000, 10_050)
    tokens.astype(dtype).tofile(tmp_path / "train.bin")
    rows = read(tmp_path / "train.bin", dtype=dtype, length=100)
    assert len(rows) == 101
    assert np.array_equal(np.concatenate([row.fields["input_ids"] for row in rows]), tokens)
    assert len(rows[-1].fields["input_ids"]) == 50


def test_a_raw_file_read_as_narrower_numbers_is_named(tmp_path: Path) -> None:
    np.random.default_rng(0).integers(0, 5000, 10_000).astype("uint32").tofile(tmp_path / "train.bin")
    (finding,) = findings(look(tmp_path / "train.bin"), "ids-in-range")
    assert finding.judgement.status == "fail"
    assert "--dtype" in finding.judgement.message


def test_the_header_of_a_token_file_is_no_data(tmp_path: Path) -> None:
    header = np.zeros(256, "<i4")
    header[:3] = (20240520, 1, 3000)
    tokens = np.arange(3000, dtype="<u2")
    (tmp_path / "shard.bin").write_bytes(header.tobytes() + tokens.tobytes())
    assert np.array_equal(np.concatenate([row.fields["input_ids"] for row in read(tmp_path / "shard.bin")]), tokens)


def test_arrays_of_one_and_two_axes(tmp_path: Path) -> None:
    np.save(tmp_path / "stream.npy", np.arange(300, dtype=np.uint16))
    assert [len(row.fields["input_ids"]) for row in read(tmp_path / "stream.npy", length=128)] == [128, 128, 44]
    np.save(tmp_path / "features.npy", np.random.default_rng(0).normal(size=(70, 2, 8)).astype(np.float32))
    rows = read(tmp_path / "features.npy")
    assert len(rows) == 70
    assert rows[0].fields["values"].shape == (16,)


def test_lines_that_are_no_utf8_or_cut_off_are_rows_that_say_so(tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "a"}\r\n\n{"text": "\xff"}\n[1, 2]\n{"text": "c')
    rows = read(path)
    assert [(row.number, row.place, bool(row.broken), row.odd_bytes) for row in rows] == [
        (0, "odd.jsonl:1", False, False),
        (1, "odd.jsonl:3", False, True),
        (2, "odd.jsonl:4", True, False),
        (3, "odd.jsonl:5", True, False),
    ]


def test_a_csv_row_of_another_width_is_a_broken_row(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n3\n4,nan\n,x\n")
    rows = read(tmp_path / "x.csv")
    assert rows[1].broken == "1 cells under 2 names"
    assert np.isnan(rows[2].fields["b"])
    assert rows[3].fields == {"a": None, "b": "x"}


def look(path: Path, **given: Any) -> Report:
    return look_at(Wanted(str(path)), Circumstances(), **given)


def findings(report: Report, check: str) -> list[Any]:
    return [finding for finding in report.findings if finding.check == check]


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("x.bin", b"", "no tokens in it"),
        ("x.bin", b"abc", "no whole number of uint16"),
        ("x.npy", b"\x93NUMPY\x01\x00broken", "cannot be read"),
        ("x.parquet", b"PAR1 and nothing else", "cannot be read as Parquet"),
        ("x.arrow", b"\xff\xff\xff\xff nothing", "cannot be read as Arrow"),
        ("x.jsonl.gz", gzip.compress(b'{"a": 1}\n' * 999, mtime=0)[:-20], "cut off"),
        ("x.csv", b"a,a\n1,2\n", "a column twice"),
        ("x.jsonl", b"", "no rows in it"),
        ("x.dat", b"\x00\x01\x02", "of no known format"),
    ],
)
def test_a_file_that_cannot_be_read_is_one_line(name: str, content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        look(path)
    assert says in str(raised.value)
    assert str(path) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_folder_without_data_and_a_name_that_is_nothing(tmp_path: Path) -> None:
    for what, says in ((str(tmp_path), "no data in this folder"), ("nothing/here", "no such file or folder")):
        with pytest.raises(UsageError, match=says):
            open_source(Wanted(what))


def test_a_split_that_leaks_is_named_whatever_its_spaces_and_case(tmp_path: Path) -> None:
    train = json_lines(tmp_path)
    split = tmp_path / "split.jsonl"
    split.write_text("".join(json.dumps({"text": text.upper().replace(" ", "  ")}) + "\n" for text in TEXTS[:40]))
    (finding,) = findings(look(train, against=Wanted(str(split))), "leaked-rows")
    assert finding.judgement.status == "fail"
    assert finding.judgement.numbers["leaked"] == len({text.lower() for text in TEXTS[:40]})
    clean = tmp_path / "clean.jsonl"
    clean.write_text("".join(json.dumps({"text": text}) + "\n" for text in sentences(50, seed=99, least=20)))
    (finding,) = findings(look(train, against=Wanted(str(clean))), "leaked-rows")
    assert finding.judgement.status == "pass"


def test_every_format_has_a_name_of_its_own() -> None:
    kinds = [entry.kind for entry in formats()]
    assert len(kinds) == len(set(kinds)) == 9


# Further shapes of the same rows.


def json_list(path: Path) -> Path:
    (path / "rows.json").write_text(json.dumps(ROWS, indent=1), encoding="utf-8")
    return path / "rows.json"


def by_bzip2(path: Path) -> Path:
    import bz2

    (path / "rows.jsonl.bz2").write_bytes(bz2.compress(json_lines(path).read_bytes()))
    return path / "rows.jsonl.bz2"


def by_xz(path: Path) -> Path:
    import lzma

    (path / "rows.jsonl.xz").write_bytes(lzma.compress(json_lines(path).read_bytes()))
    return path / "rows.jsonl.xz"


def by_zstd(path: Path) -> Path:
    import pyarrow

    packed_to = path / "rows.jsonl.zst"
    with pyarrow.output_stream(str(packed_to), compression="zstd") as file:
        file.write(json_lines(path).read_bytes())
    return packed_to


@pytest.mark.parametrize("maker", [json_list, by_bzip2, by_xz, by_zstd])
def test_lists_and_packed_files_have_the_same_rows(maker: Callable[[Path], Path], tmp_path: Path) -> None:
    assert [dict(row.fields) for row in read(maker(tmp_path))] == ROWS


def test_a_list_over_many_blocks_and_one_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steadytrain.checks.data import bytes_of

    monkeypatch.setattr(bytes_of, "BLOCK_BYTES", 1000)
    path = json_list(tmp_path)
    assert [dict(row.fields) for row in read(path)] == ROWS
    path.write_bytes(path.read_bytes()[:-3000])
    rows = read(path)
    assert 0 < len(rows) < len(ROWS)
    assert [row.broken for row in rows if row.broken] == ["the list is cut off or damaged from here on"]
    assert rows[-1].broken


def test_lines_of_plain_text(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_bytes("one\n\n \nzwölf\n".encode() + b"\xff\n")
    rows = read(tmp_path / "words.txt")
    assert [(row.fields["text"], row.place, row.odd_bytes) for row in rows] == [
        ("one", "words.txt:1", False),
        ("zwölf", "words.txt:4", False),
        ("\ufffd", "words.txt:5", True),
    ]


def test_pairs_of_tokens_and_index(tmp_path: Path) -> None:
    import struct

    lengths = np.array([5, 1, 300], "<i4")
    tokens = np.random.default_rng(0).integers(0, 60_000, 306).astype("<u2")
    pointers = 2 * np.array([0, 5, 6], "<i8")
    header = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 8, 3, 3)
    (tmp_path / "text.bin").write_bytes(tokens.tobytes())
    (tmp_path / "text.idx").write_bytes(header + lengths.tobytes() + pointers.tobytes() + b"\x00" * 24)
    rows = read(tmp_path / "text.bin")
    assert [len(row.fields["input_ids"]) for row in rows] == [5, 1, 300]
    assert np.array_equal(np.concatenate([row.fields["input_ids"] for row in rows]), tokens)
    (tmp_path / "text.bin").write_bytes(tokens[:200].tobytes())
    assert read(tmp_path / "text.bin")[2].broken == "the index points beyond the end of the tokens"
    assert open_source(Wanted(str(tmp_path))).kind == "indexed-tokens"


def test_rows_that_are_all_of_the_wrong_kind_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("[1, 2]\n[3]\n")
    with pytest.raises(UsageError, match=r"none of its 2 rows can be read; the first is x\.jsonl:1: a JSON list"):
        look(tmp_path / "x.jsonl")


def test_objects_that_are_no_data_set() -> None:
    from steadytrain.checks.data.sources import of_object

    for given, says in (("text", "a str, and no data set"), ({"a": []}, "a mapping of a"), (7, "no iterable")):
        with pytest.raises(UsageError, match=says):
            of_object(given, name="m:x")
    source = of_object({"train": [1.5, 2.5]}, name="m:x")
    assert [row.fields for block in source.rows(lambda *told: None) for row in block] == [
        {"value": 1.5},
        {"value": 2.5},
    ]


def test_data_sets_and_loaders_of_torch() -> None:
    torch = pytest.importorskip("torch")
    from torch.utils.data import DataLoader, TensorDataset

    from steadytrain.checks.data.sources import of_object

    def rows_of(given: Any) -> list[dict[str, Any]]:
        blocks = of_object(given, name="m:x").rows(lambda *told: None)
        return [dict(row.fields) for block in blocks for row in block if row.fields is not None]

    features, labels = torch.randn(10, 3), torch.arange(10) % 2
    data = TensorDataset(features, labels)
    for given in (data, DataLoader(data, batch_size=4)):
        rows = rows_of(given)
        assert [row["label"] for row in rows] == labels.tolist()
        assert np.array_equal(np.stack([row["features"] for row in rows]), features.numpy())
    tokens = [{"input_ids": torch.arange(5) + place, "labels": torch.arange(5)} for place in range(6)]
    for given in (tokens, DataLoader(tokens, batch_size=4)):  # type: ignore[arg-type]
        rows = rows_of(given)
        assert len(rows) == 6
        assert rows[5]["input_ids"].tolist() == [5, 6, 7, 8, 9]
    assert rows_of([torch.ones(2, dtype=torch.bfloat16)])[0]["value"].tolist() == [1.0, 1.0]
