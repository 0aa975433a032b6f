"""``steadytrain check-data``: findings for a person, one document for a program, one line for a mistake."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from scripts import call
from steadytrain.checks.data.data_pass import check_classes, check_name
from steadytrain.cli.check_data import FAST_ROWS, command
from steadytrain.core.errors import UsageError

ROOT = Path(__file__).parents[2]
STATUSES = {"pass", "warn", "fail", "not-run"}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(
        command, [str(argument) for argument in arguments], catch_exceptions=False, standalone_mode=False
    )


def rows(folder: Path, count: int = 200, *, last: str = "") -> Path:
    path = folder / "train.jsonl"
    lines = [json.dumps({"id": place, "text": f"row number {place} of the file"}) for place in range(count)]
    path.write_text("\n".join(lines) + "\n" + last)
    return path


def in_folder(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return call("check-data", *arguments, folder=folder)


def test_good_data_ends_with_status_0(tmp_path: Path) -> None:
    result = run(rows(tmp_path))
    assert result.return_value == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "train.jsonl: 200 rows, json-lines"
    assert "fail" not in result.stdout
    assert not any(line != line.rstrip() for line in lines)


def test_a_failure_shows_its_row_and_ends_with_status_1(tmp_path: Path) -> None:
    result = run(rows(tmp_path, last='{"id": 5, "te'))
    assert result.return_value == 1
    assert "fail  broken-rows: 1 of 201 rows cannot be read" in result.stdout
    assert "train.jsonl:201" in result.stdout


def test_the_document_has_every_check(tmp_path: Path) -> None:
    result = run(rows(tmp_path, last="\n"), "--json", "--limit", "50")
    document: dict[str, Any] = json.loads(result.stdout)
    assert document["schema"] == "steadytrain.data/1"
    assert (document["rows"], document["whole"], document["kind"], document["status"]) == (
        50,
        False,
        "json-lines",
        "pass",
    )
    assert document["fields"] == {"text": "text", "identity": "id"}
    assert {finding["check"] for finding in document["findings"]} == {check_name(cls) for cls in check_classes()}
    for finding in document["findings"]:
        assert finding.keys() == {"check", "status", "message", "numbers", "rows", "means", "next"}
        assert finding["status"] in STATUSES
        assert finding["means"]
        assert finding["next"]


def test_fast_looks_at_the_beginning(tmp_path: Path) -> None:
    document = json.loads(run(rows(tmp_path, FAST_ROWS + 10), "--fast", "--json").stdout)
    assert (document["rows"], document["whole"]) == (FAST_ROWS, False)


def test_an_iterable_of_a_module(tmp_path: Path) -> None:
    (tmp_path / "my_data.py").write_text(
        "def endless():\n    number = 0\n    while True:\n        yield f'text number {number}'\n        number += 1\n"
        "rows = [{'text': f'row {n}', 'label': n % 2} for n in range(30)]\n"
    )
    ran = in_folder(tmp_path, "my_data:endless", "--limit", "300", "--json")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["rows"] == 300
    ran = in_folder(tmp_path, "my_data:no_such")
    assert ran.returncode == 2
    assert ran.stderr == "steadytrain: my_data has no 'no_such'; it has endless, rows\n"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no/such"], "no such file or folder"),
        (["{data}", "--dtype", "float32"], "--dtype float32"),
        (["{data}", "--dtype", "uint32"], "--dtype uint32: only raw tokens in a .bin need it, {data} (json-lines)"),
        (["{data}", "--dtype", "uint32", "--against", "{data}"], "--dtype uint32: only raw tokens in a .bin need it"),
        (["{data}", "--tokenizer", "/no/such"], "--tokenizer /no/such"),
        (["{data}", "--labels", "kind"], "--labels kind: no such field"),
        (["{data}", "--text", "body"], "their fields are id, text"),
        (["{data}", "--against", "/no/such"], "no such file or folder"),
    ],
)
def test_a_mistake_is_one_line(arguments: list[str], says: str, tmp_path: Path) -> None:
    data = rows(tmp_path)
    given = [argument.format(data=data) for argument in arguments]
    with pytest.raises(UsageError) as raised:
        run(*given)
    assert says.format(data=data) in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_number_type_counts_where_one_of_the_two_files_needs_it(tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(bytes(range(256)) * 64)
    one, other = tmp_path / "train.bin", rows(tmp_path)
    for arguments in ([one], [one, "--against", other], [other, "--against", one]):
        assert run(*arguments, "--dtype", "uint32", "--json").return_value in (0, 1)


def test_it_needs_no_torch(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['torch'] = None\n"
        "from steadytrain.cli.check_data import command\n"
        f"command([{str(rows(tmp_path))!r}], standalone_mode=False)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_page_names_every_check() -> None:
    page = (ROOT / "docs" / "data-checks.md").read_text(encoding="utf-8")
    assert [name for name in map(check_name, check_classes()) if f"\n## {name}\n" not in page] == []


def test_explain_tells_of_every_check() -> None:
    from steadytrain.cli.explain import command as explain

    def told(*arguments: str) -> str:
        result = CliRunner().invoke(explain, list(arguments), catch_exceptions=False, standalone_mode=False)
        return result.stdout

    listed = told()
    assert [name for name in map(check_name, check_classes()) if f"\n{name} " not in listed] == []
    assert told("leaked-rows").startswith("leaked-rows: No row of the --against split")
    page = json.loads(told("leaked-rows", "--json"))
    assert page["schema"] == "steadytrain.data-check-explanation/1"
    assert page["means"]
    assert page["next"]
