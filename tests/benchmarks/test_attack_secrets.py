"""The corpus of planted secrets: every form is taken out of text, JSON, code and notebooks, and out of a whole run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

from secret_forms import Form, forms  # noqa: E402

from steadytrain.storage.documents import as_json  # noqa: E402
from steadytrain.storage.redaction import redact_text  # noqa: E402

FORMS = forms(20261123)
TAKEN = re.compile(r"\[redacted: [a-z0-9-]{1,40}, (\d{1,9}) characters?(?:, #[0-9a-f]{8})?\]")


def test_there_are_at_least_120_forms_and_other_words_each_time() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS) >= 120
    assert not {form.secret for form in FORMS} & {form.secret for form in forms(1)}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_a_form_does_not_come_through(form: Form) -> None:
    text = form.text
    ways = {
        "text": redact_text(text),
        "code": redact_text(f"    model = build({text!r}, 3)  # line"),
        "diff": redact_text(f"+++ b/train.py\n@@ -1,2 +1,2 @@\n+{text}\n lr = 3e-4\n"),
        "value": as_json({"note": text, "list": [text, 1], "tree": {"value": text}}),
        "key": as_json({text: 1}),
        "notebook": redact_text(json.dumps({"cells": [{"source": [text]}]})),
        "exception": redact_text(f"RuntimeError: cannot open {text} (status 3)"),
    }
    assert {way: done for way, done in ways.items() if form.secret in done} == {}


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
def test_what_is_taken_out_keeps_its_kind_and_length(form: Form) -> None:
    kept = redact_text(form.text)
    taken = [int(size) for size in TAKEN.findall(kept)]
    assert taken
    assert sum(taken) == len(form.text) - len(TAKEN.sub("", kept))


def test_no_form_stands_in_clear_in_the_repository() -> None:
    held = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").glob("*secret*.py"))
    assert [form.name for form in FORMS if form.secret in held] == []


@pytest.mark.long
@pytest.mark.slow
def test_nothing_comes_through_a_run_and_its_commands() -> None:
    line = [sys.executable, str(ROOT / "benchmarks" / "attack_secrets.py"), "--quick"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
