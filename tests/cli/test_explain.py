from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from steadytrain.cli._catalogues import documents
from steadytrain.cli.explain import command
from steadytrain.core.errors import UsageError

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_without_a_name_it_lists_all_with_their_first_sentence() -> None:
    lines = [" ".join(line.split()) for line in run().splitlines()]
    assert "nonfinite-loss The loss of a step is NaN or Inf." in lines
    names = [line.split()[0] for line in lines[: lines.index("")]]
    assert names == sorted(names)
    assert {"divergence", "loss-spike"} <= set(names)


def test_a_name_is_explained_with_its_thresholds() -> None:
    text = run("loss-spike")
    for part in ("Means:", "Causes:", "Next:", "Thresholds:", "z = 10.0: ", "Reads: loss"):
        assert part in text
    assert max(len(line) for line in text.splitlines()) <= 120


def test_json_of_one() -> None:
    document = json.loads(run("--json", "divergence"))
    assert document["schema"] == "steadytrain.explanation/1"
    assert document["name"] == "divergence"
    assert {"name", "value", "about"} == set(document["thresholds"][0])
    assert all(document[part] for part in ("summary", "means", "causes", "next", "needs"))


def test_json_of_all() -> None:
    document = json.loads(run("--json"))
    assert document["schema"] == "steadytrain.explanations/1"
    assert {"name", "summary"} == set(document["symptoms"][0])


def test_an_unknown_name_is_the_users_error() -> None:
    with pytest.raises(UsageError, match="did you mean loss-spike"):
        CliRunner().invoke(command, ["loss-spik"], catch_exceptions=False)


@pytest.mark.parametrize("name", documents())
def test_a_committed_page_is_the_generated_one(name: str) -> None:
    """`make docs` writes it anew."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == documents()[name]
