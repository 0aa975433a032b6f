"""The table of trials of one incident, for a page that looks on while `diagnose` runs here or in a terminal.

A trial is listed when its outcome is on disk, with what was seen in it. Its verdict follows when `diagnose` has judged
it beside its control. Nothing is judged here.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from steadytrain.core.bounded_files import read_json
from steadytrain.diagnosis.answer import Diagnosis, TrialRow
from steadytrain.diagnosis.answer_files import read
from steadytrain.experiments.outcome_files import OUTCOME_BYTES_MAX, trials_folder
from steadytrain.experiments.progress_file import going_on
from steadytrain.experiments.specs import UNCHANGED, Outcome, Verdict
from steadytrain.live.served.trials_seen import TRIALS_MAX, outcome_files
from steadytrain.report import diagnosis_shown
from steadytrain.report.first_screen import headline
from steadytrain.report.wording import clean, number
from steadytrain.storage.documents import redact_value

OUTCOMES_KEPT = 1000
SEEN_MAX = 3


class TrialTable:
    """Reads the outcomes of trials, each file once while it does not change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], Outcome | None] = OrderedDict()

    def document(self, source: Path) -> dict[str, Any]:
        """What is known of the diagnosis of a bundle or run: what it does now, its trials, its answer."""
        going = going_on(source)
        answer = None if going is not None else read(source)
        verdicts: Iterable[Verdict | TrialRow] = (
            going.verdicts if going is not None else answer.trials if answer else ()
        )
        return redact_value(
            {
                "running": going is not None,
                "doing": clean(going.doing) if going is not None else "",
                "trials": self._rows(source, {one.trial: one for one in verdicts}),
                "answer": _answer(answer) if answer is not None else None,
            }
        )

    def _rows(self, source: Path, verdicts: dict[str, Verdict | TrialRow]) -> list[dict[str, Any]]:
        seen: dict[str, list[Outcome]] = {}
        for name, changed_ns in outcome_files(trials_folder(source))[-TRIALS_MAX:]:
            outcome = self._outcome(trials_folder(source) / name, changed_ns)
            if outcome is not None:
                seen.setdefault(outcome.spec.trial, []).append(outcome)
        without: dict[str, list[Outcome]] = {name: [] for name in verdicts if name not in seen}
        return [
            {
                "trial": clean(name),
                "runs": sum(one.ran for one in outcomes),
                "seen": clean("; ".join(dict.fromkeys(map(told, outcomes[-SEEN_MAX:])))),
                "effect": verdicts[name].effect if name in verdicts else "",
                "why": clean(verdicts[name].why) if name in verdicts else "",
            }
            for name, outcomes in {**seen, **without}.items()
        ]

    def _outcome(self, file: Path, changed_ns: int) -> Outcome | None:
        key = (os.fspath(file), changed_ns)
        with self._lock:
            if key not in self._kept:
                self._kept[key] = _read_outcome(file)
                while len(self._kept) > OUTCOMES_KEPT:
                    self._kept.popitem(last=False)
            return self._kept[key]


def told(outcome: Outcome) -> str:
    """What was seen in one run of a trial."""
    if not outcome.ran:
        return f"not run: {outcome.why_not}"
    bad = outcome.first_nonfinite
    trained = len(outcome.steps)
    loss = next((step.loss for step in reversed(outcome.steps) if step.loss is not None), None)
    last = f", last loss {number(loss)}" if loss is not None and bad is None else ""
    end = f"not finite in its step {trained}" if bad is not None else f"finite in {trained} steps{last}"
    same = {True: "; the same to the last bit", False: "; not the same to the last bit", None: ""}[outcome.exact]
    return f"{end}{same if outcome.spec.trial == UNCHANGED else ''}"


def _read_outcome(file: Path) -> Outcome | None:
    try:
        return Outcome.from_json(read_json(file, bytes_max=OUTCOME_BYTES_MAX)["outcome"])
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None


def _answer(answer: Diagnosis) -> dict[str, str]:
    sentence, certainty = headline(diagnosis_shown.part(answer), "")
    return {"headline": sentence, "certainty": certainty}
