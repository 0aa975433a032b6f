"""What a check says of a subject, for the tests of checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from steadytrain.checks.subject.model_check import CannotError, Outcome, not_run
from steadytrain.preflight_runs.check_catalog import chosen
from steadytrain.preflight_runs.in_code import subject_of
from steadytrain.preflight_runs.model_copies import fingerprint, moved


def outcome(check: str, given: Mapping[str, Any], **parts: Any) -> Outcome:
    """What the check says of a model in code; ``parts`` of the subject are what a script would have had besides."""
    subject, bench = subject_of(**given)
    subject = replace(subject, **parts)
    before = fingerprint([subject.model], subject.optimizers, subject.schedulers)
    with bench.copies(seed=0):
        try:
            found = chosen((check,), ())[0].inspect(subject)
        except CannotError as why:
            found = not_run(str(why))
    assert not moved(before, fingerprint([subject.model], subject.optimizers, subject.schedulers))
    return found
