from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from steadytrain.cli._catalogues import documents
from steadytrain.cli.explain import command
from steadytrain.core.errors import UsageError
from steadytrain.diagnosis.cause_catalog import causes, interventions_of
from steadytrain.experiments.trial_catalog import trials

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(command, arguments, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_without_a_name_it_lists_all_with_their_first_sentence() -> None:
    lines = [" ".join(line.split()) for line in run().splitlines()]
    assert "nonfinite-loss The loss of a step is NaN or Inf." in lines
    assert lines[:2] == ["Symptoms:", ""]
    names = [line.split()[0] for line in lines[2 : lines.index("", 2)]]
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


def test_a_trial_is_explained_by_what_it_changes_and_tells() -> None:
    text = run("learning-rate-third")
    for part in ("Changes:", "Tells:", "Beware:", "- steps are too long (rate)", "`smaller steps`"):
        assert part in text
    document = json.loads(run("--json", "learning-rate-third"))
    assert document["schema"] == "steadytrain.trial-explanation/1"
    assert (document["kind"], document["rate_only"], document["alike"]) == ("trial", True, "smaller steps")
    assert all(document[part] for part in ("summary", "changes", "tells", "beware", "removes"))


def test_an_intervention_is_explained_by_the_causes_that_it_mends() -> None:
    assert "- data-shift: a third of the learning rate (rung 1, trial learning-rate-third)" in run(
        "lower-learning-rate"
    )
    document = json.loads(run("--json", "lower-learning-rate"))
    assert document["schema"] == "steadytrain.intervention-explanation/1"
    assert {"cause", "rung", "what", "trial"} == set(document["mends"][0])


def test_a_name_that_is_a_trial_and_an_intervention_has_both_pages() -> None:
    trial, intervention = run("layer-norm").split("\nAs an intervention\n")
    assert "Changes:" in trial
    assert "- bad-initialization: a norm before the named layer (rung 5, by hand)" in intervention
    assert (
        "- normalization-misuse: group or layer norm in place of batch norm (rung 5, trial layer-norm)" in intervention
    )


def test_every_trial_and_every_intervention_has_its_page() -> None:
    listed = json.loads(run("--json"))
    assert [page["name"] for page in listed["trials"]] == sorted(one.name for one in trials())
    mending = {one.name for name, cause in causes().items() for one in interventions_of(name, cause)}
    assert [page["name"] for page in listed["interventions"]] == sorted(mending)


def test_json_of_all() -> None:
    document = json.loads(run("--json"))
    assert document["schema"] == "steadytrain.explanations/1"
    assert {"name", "summary"} == set(document["symptoms"][0])


def found(*words: str) -> set[str]:
    document = json.loads(run("--json", *words))
    assert document["schema"] == "steadytrain.explanations/1"
    assert document["asked"] == " ".join(words)
    return {page["name"] for kind in document.values() if isinstance(kind, list) for page in kind}


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        ("nan", {"nonfinite-loss", "nonfinite-gradient", "safe-softmax"}),
        ("my loss is nan", {"nonfinite-loss"}),
        ("loss goes up", {"divergence"}),
        ("model does not learn", {"no-learning", "plateau"}),
        ("lr", {"learning-rate-jump", "zero-learning-rate", "learning-rate-third"}),
        ("nan fp16", {"loss-scale-collapse"}),
        ("advantage not detached", {"live-target"}),
    ],
)
def test_words_find_what_is_about_them(asked: str, wanted: set[str]) -> None:
    assert wanted <= found(*asked.split())
    assert found(asked) == found(*asked.split())
    text = run(asked)
    assert f"Nothing is called '{asked}'; these are about it." in " ".join(text.split())
    assert "next  steadytrain explain " in text


def test_the_verdict_comes_before_the_lists() -> None:
    assert run("nan").startswith("Nothing is called 'nan'; these are about it.\n\nSymptoms:")


def test_a_short_word_is_matched_whole() -> None:
    assert "token-file" not in found("nan")  # nanoGPT's


def test_causes_are_found_by_their_meaning_and_by_the_symptom_that_names_them() -> None:
    causes = {"singular-operation", "no-supervised-tokens", "half-precision-overflow", "nonfinite-input"}
    assert causes <= found("nan")
    assert causes <= found("my", "loss", "is", "nan")
    assert "missing-zero-grad" in found("gradients", "earlier", "updates")


def test_a_further_word_narrows_the_search() -> None:
    assert len(found("rate", "optimizer")) < len(found("rate"))


def test_words_that_make_a_name_are_the_name() -> None:
    assert run("loss", "spike") == run("Loss_Spike") == run("loss-spike")


@pytest.mark.parametrize("asked", ["xyzzy", "the", "?", " ", "*[", "gpu out of memory"])
def test_words_that_find_nothing_are_the_users_error(asked: str) -> None:
    with pytest.raises(UsageError, match="nothing is called"):
        CliRunner().invoke(command, [asked], catch_exceptions=False)


def test_an_unknown_name_is_the_users_error() -> None:
    with pytest.raises(UsageError, match="did you mean loss-spike"):
        CliRunner().invoke(command, ["loss-spyke"], catch_exceptions=False)


@pytest.mark.parametrize("name", documents())
def test_a_committed_page_is_the_generated_one(name: str) -> None:
    """`make docs` writes it anew."""
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == documents()[name]
