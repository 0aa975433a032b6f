"""Policies in files: what they say, and what is wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import call
from steadytrain.core.errors import UsageError
from steadytrain.guard.intervention import kinds
from steadytrain.guard.policy import BASES, built_in
from steadytrain.guard.policy_files import as_toml, find_policy, read_policy

WRONG = {
    "": "empty",
    "policy = 3": "policy 3",
    'policy = "brave"': "'brave'",
    "policy = [": "not TOML",
    'polizy = "stop"': "'polizy'",
    '[symptoms]\nloss-spik = "stop"': "did you mean loss-spike",
    '[symptoms]\nloss-spike = "panic"': "'panic'",
    '[symptoms]\ndivergence = "skip"': "before its update",
    '[symptoms]\ndivergence = "intervene"': "no ladder",
    'policy = "observe"\n[symptoms]\ndivergence = "stop"': "contradicts",
    'policy = "steady"\n[budget]\nskips = -1': "skips = -1",
    'policy = "steady"\n[budget]\nskips = 2': "skips-in-a-row = 5",
    'policy = "steady"\n[budget]\nlowest-learning-rate = nan': "lowest-learning-rate",
    'policy = "steady"\n[budget]\npatience = 3': "'patience'",
    'policy = "steady"\n[ladders]\ndefault = []': "default = []",
    'policy = "steady"\n[ladders]\ndefault = ["pray"]': "'pray'",
    'policy = "steady"\n[ladders]\ndivergence = ["skip"]': "'skip' stands alone",
    'policy = "steady"\n[ladders]\nplateau = ["clip"]': "never used",
    'policy = "steady"\n[interventions.clip]\nlevel = "high"': "level = 'high'",
    'policy = "steady"\n[interventions.clip]\nlevel = -1.0': "level -1.0",
    'policy = "steady"\n[interventions.lower-learning-rate]\nrewarm = 1.5': "whole number",
    "symptoms = 3": "must be a table",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_file_is_refused_with_what_is_wrong(text: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as refused:
        read_policy(path)
    assert str(refused.value).startswith(str(path))
    assert WRONG[text] in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", BASES)
def test_a_policy_that_is_shown_reads_as_the_same(name: str, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(as_toml(built_in(name)), encoding="utf-8")
    again, known = read_policy(path), built_in(name)
    assert (again.budget, again.ladders, again.default, again.base) == (
        known.budget,
        known.ladders,
        known.default,
        known.base,
    )
    for symptom in ("nonfinite-loss", "divergence", "plateau"):
        assert again.response(symptom) == known.response(symptom)
    assert again.acts is (name == "steady")


def test_what_is_no_policy_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such policy; one of observe, stop, skip, steady"):
        find_policy("brave")
    with pytest.raises(UsageError, match="No such file"):
        find_policy(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not UTF-8"):
        find_policy(str(tmp_path / "bytes.toml"))


def test_every_intervention_says_what_it_does_and_its_defaults_hold() -> None:
    assert {"skip", "roll-back", "clip", "lower-learning-rate", "reset-moments"} <= set(kinds())
    for kind in kinds().values():
        kind().check()
        assert kind().describe().strip()


def test_the_command_line(tmp_path: Path) -> None:
    shown = call("policy", "show", "steady")
    assert shown.returncode == 0
    assert 'divergence = "intervene"' in shown.stdout
    wrong = tmp_path / "wrong.toml"
    wrong.write_text('policy = "brave"', encoding="utf-8")
    refused = call("run", "--policy", str(wrong), "nothing.py")
    assert refused.returncode == 2
    assert len(refused.stderr.splitlines()) == 1
    assert "lower-learning-rate" in call("policy", "interventions").stdout
