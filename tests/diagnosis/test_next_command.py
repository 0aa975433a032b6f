"""The one command that comes after a diagnosis."""

from __future__ import annotations

import pytest

from steadytrain.diagnosis.answer import Diagnosis, PatchTried, RankedCause, Remedy, Status
from steadytrain.diagnosis.next_command import after

WORKS = Remedy("drop-batch", 2, "leave the batch out", "drop-batch", "removed", "steadytrain verify x")
FAILED = Remedy("clip", 2, "clip", "clip", "persists", "steadytrain verify x")
PATCH = PatchTried("c", "clamp", "s.py", "--- s.py", "removed", "it is gone", 1.0, 0.5, 10)
UNDECIDED = PatchTried("c", "clamp", "s.py", "--- s.py", "inconclusive", "it ended early", 1.0, 0.5, 10)


def answered(cause: str, status: Status | None, *remedies: Remedy, patch: PatchTried | None = None) -> Diagnosis:
    ranked = RankedCause(cause, "It is so.", status or "possible", 0.9, (), None, (), remedies, "")
    return Diagnosis("i", "s", "exact", "", cause if status else "unknown", status, "", (ranked,), (), patch=patch)


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        (answered("singular-operation", "confirmed", WORKS), "steadytrain fix RUN/step-1"),
        (answered("singular-operation", "confirmed", WORKS, patch=PATCH), "steadytrain fix RUN/step-1 --write"),
        (answered("singular-operation", "likely", FAILED, patch=UNDECIDED), "steadytrain report RUN/step-1"),
        (answered("bad-batch", "confirmed", WORKS), "steadytrain verify RUN/step-1 --with drop-batch"),
        (answered("bad-batch", "likely", FAILED), "steadytrain report RUN/step-1"),
        (answered("bad-batch", None, WORKS), "steadytrain report RUN/step-1"),
    ],
)
def test_what_comes_next_depends_on_what_was_seen(answer: Diagnosis, line: str) -> None:
    assert after(answer).of("RUN/step-1") == line
