"""``steadytrain repro`` from end to end: capture, shrink, verify in a fresh process, report.

No user code runs in this process. A script counts as a reproduction only after it failed as stated in its own process.
Otherwise no script is left.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import BATCH_IS_BAD, NOT_MADE_HERE, UNKNOWN_OWNER, WEIGHTS_ARE_BAD, Finding
from steadytrain.replay.child_processes import process_group
from steadytrain.replay.failing_step import launch_again
from steadytrain.repro.documented import documented
from steadytrain.repro.failing_step_capture import REQUEST, RESULT, Request
from steadytrain.repro.script_making import (
    FRESH_WAIT_S,
    ISSUE,
    NOTE,
    Repro,
    check_folder,
    made_small,
    put_down,
    sizes_of,
)
from steadytrain.storage.bundle import Bundle, write_json

COMPILED_CUT_S_MAX = 240.0
"""Time limit in seconds for cutting a compiled program: a dozen compilations of one to ten seconds, with half the
limit."""

CAME_IN_BAD = (BATCH_IS_BAD, f"{UNKNOWN_OWNER} held")
CAME_OUT_FINITE = "the re-run did not reproduce"


@dataclass
class _Work:
    """One reproduction attempt: its bundle, folder, options and time limit."""

    bundle: Bundle
    scratch: Path
    before: int
    wait_s: float
    clock: Callable[[], float]
    began: float

    @property
    def left_s(self) -> float:
        return max(1.0, self.wait_s - (self.clock() - self.began))


def make_repro(
    bundle: Bundle,
    folder: Path,
    *,
    wait_s: float,
    compiled_wait_s: float,
    before: int = 0,
    clock: Callable[[], float] = time.monotonic,
) -> Repro:
    """Makes a script for the fault of ``bundle`` in ``folder``, which must be absent or empty.

    Args:
        wait_s: time limit in seconds for everything but the variants.
        compiled_wait_s: time limit in seconds for the variants (float64, compiled); 0 skips them.
        before: number of extra operations before the first bad one, which the fault does not need.

    Raises:
        UsageError: the incident cannot be launched again.
    """
    check_folder(folder)
    with tempfile.TemporaryDirectory(prefix="steadytrain-repro-") as scratch:
        work = _Work(bundle, Path(scratch), before, wait_s, clock, clock())
        captured = _captured(work)
        finding = Finding.from_json(captured["finding"])
        if captured.get("compiled"):
            return _compiled_only(work, folder, finding, compiled_wait_s)
        if not captured["programs"]:
            why = str(captured["why"] or finding.why)
            return _without_script(bundle, folder, finding, why, untraced=captured.get("untraced"))
        made = _made(work)
        if made["why"] is not None:
            return Repro(False, made["why"], finding=finding)
        refused, variants = _verified(work, compiled_wait_s)
        if refused is not None:
            return Repro(False, f"not called a reproduction: {refused}", finding=finding)
        return _put(work, folder, finding, made, variants)


def is_finite(bundle: Bundle) -> bool:
    """Whether everything in the incident is finite."""
    incident = bundle.incident
    return all(math.isfinite(loss) for loss in incident.losses) and not incident.parameters


def _captured(work: _Work) -> dict[str, Any]:
    """Launches the recorded command and captures the fault; twice if the step does not fit into memory."""
    incident = work.bundle.incident
    recorded = incident.finding
    if recorded.is_half_traced(incident.samples):
        return _captured_before_model(work, recorded)
    if recorded.located is None and recorded.why.startswith(BATCH_IS_BAD):
        return {"finding": recorded.to_json(), "programs": [], "why": None}
    request = Request(
        work.before,
        update=recorded.located is None and recorded.why.startswith(WEIGHTS_ARE_BAD),
        whole_lead=recorded.located is None,
    )
    found = _launched(work, request)
    if not request.update and not request.whole_lead and _is_another(recorded, found):
        # Only after all of its own steps do the script's counters match the recorded run.
        request = replace(request, whole_lead=True)
        again = _launched(work, request)
        found = again if again["programs"] or again.get("keep") or not found["programs"] else found
    told = str(found["why"] or "")
    broken = told.startswith(WEIGHTS_ARE_BAD) or (not found.get("compiled") and told.startswith(CAME_OUT_FINITE))
    if recorded.located is None and not request.update and broken:
        # Also if it came out finite: an update may have broken a parameter that belongs to no module.
        request = replace(request, update=True)
        updated = _launched(work, request)
        found = updated if updated["programs"] or updated.get("keep") or told.startswith(WEIGHTS_ARE_BAD) else found
    if found.get("keep"):
        found = _launched(work, replace(request, keep=found["keep"]))
    return found


def _captured_before_model(work: _Work, recorded: Finding) -> dict[str, Any]:
    """The operation of the script that spoilt the batch before the model got it, if one did and the script can say so
    again; else the recorded finding, with the reason."""
    request = Request(work.before, whole_lead=True)
    try:
        found = _launched(work, request)
    except UsageError as refusal:
        return {"finding": recorded.to_json(), "programs": [], "why": None, "untraced": str(refusal)}
    if found.get("keep"):
        found = _launched(work, replace(request, keep=found["keep"]))
    traced = Finding.from_json(found["finding"])
    if found["programs"] or traced.located is not None or NOT_MADE_HERE in traced.why:
        return found
    return {"finding": recorded.to_json(), "programs": [], "why": None, "untraced": traced.why}


def _is_another(recorded: Finding, found: Mapping[str, Any]) -> bool:
    """Whether a launch with one own step found nothing, or another operation than the incident's."""
    if found.get("keep"):
        return False
    located = Finding.from_json(found["finding"]).located
    if located is None or recorded.located is None:
        return not found["programs"] and not str(found["why"] or "").startswith(WEIGHTS_ARE_BAD)
    return (located.operation, located.phase) != (recorded.located.operation, recorded.located.phase)


def _launched(work: _Work, request: Request) -> dict[str, Any]:
    result = work.scratch / RESULT
    result.unlink(missing_ok=True)
    write_json(work.scratch / REQUEST, asdict(request))
    module, arguments = "steadytrain.repro.failing_step_capture", [str(work.scratch)]
    why = launch_again(work.bundle, module, arguments, result, wait_s=work.left_s)
    if why is not None:
        return {"finding": Finding(None, f"not searched: {why}").to_json(), "programs": [], "why": why}
    found: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
    return found


def _without_script(bundle: Bundle, folder: Path, finding: Finding, why: str, *, untraced: str | None = None) -> Repro:
    """Without a script: writes the non-finite batch rows if the batch is to blame.

    ``untraced`` says why nobody knows what the script did to the batch.
    """
    from steadytrain.repro.nonfinite_rows import FROM_DATA, UNTRACED, WRITTEN, bad_rows, write_rows

    place = _written_at(finding)
    came_in = finding.located is None and finding.why.startswith(CAME_IN_BAD)
    # Only then: a batch may contain NaN that the model handles, which is not the cause.
    found = bad_rows(bundle) if place or came_in else []
    if not found:
        return Repro(False, why, finding=finding)
    folder.mkdir(parents=True, exist_ok=True)
    said = WRITTEN.format(place=place) if place else FROM_DATA if untraced is None else UNTRACED
    write_rows(found, folder, bundle.incident.samples, said=said)
    rows = {one.name: list(one.rows) for one in found}
    told = "; ".join(f"{one.name}, row {', '.join(map(str, one.rows[:4]))}" for one in found)
    why = f"no operation is to blame: the batch itself holds values that are not finite ({told}); its rows are written"
    if place:
        why = f"the script writes values that are not finite into the batch at {place} ({told}); its rows are written"
    elif untraced is not None:
        why = (
            f"the model got values that are not finite ({told}), and what made them could not be traced: {untraced}; "
            "the rows are written"
        )
    return Repro(False, why, files=sizes_of(folder), finding=finding, rows=rows)


def _written_at(finding: Finding) -> str:
    """The line that writes a value which is not finite into the batch as a constant; "" if an operation made it."""
    found = finding.located
    if found is None or found.phase != "preprocessing" or not found.file:
        return ""
    return f"{Path(found.file).name}:{found.line}"


def _made(
    work: _Work, module: str = "steadytrain.repro.program_shrinking", *, budget_s: float | None = None
) -> dict[str, Any]:
    """Shrinks the captured program in its own process, because an operation on odd shapes may crash it."""
    budget = work.left_s
    command = [module, str(work.scratch), f"{min(budget_s or budget, budget) / 2:.1f}"]
    return made_small(work.scratch, command, wait_s=budget, environment=_compiling(work))


def _compiled_only(work: _Work, folder: Path, finding: Finding, compiled_wait_s: float) -> Repro:
    """For a step that is finite in eager mode: compiles its loss and cuts it down."""
    from steadytrain.repro.fresh_process import fault_in_fresh_process

    if compiled_wait_s <= 0:
        return Repro(False, f"{finding.why}; compiled was not tried (--compiled-wait-s 0)", finding=finding)
    made = _made(work, "steadytrain.repro.compiled_fault", budget_s=COMPILED_CUT_S_MAX)
    if made["why"] is not None:
        return Repro(False, str(made["why"]), finding=finding)
    refused = fault_in_fresh_process(work.scratch / "repro.py", wait_s=FRESH_WAIT_S, fault=str(made["fault"]))
    if refused is not None:
        return Repro(False, f"not called a reproduction: {refused}", finding=finding)
    return _put(work, folder, finding, made, dict(made["variants"]))


def _verified(work: _Work, compiled_wait_s: float) -> tuple[str | None, dict[str, str]]:
    """Runs the script in a fresh process and, at the same time, its variants in another.

    If the readable script does not fail, the exact one replaces it.
    """
    from steadytrain.repro.fresh_process import fault_in_fresh_process

    script = work.scratch / "repro.py"
    with _trying(work, compiled_wait_s) as variants:
        refused = fault_in_fresh_process(script, wait_s=FRESH_WAIT_S)
        found = variants()
    if refused is not None:
        (work.scratch / "exact.py").replace(script)
        refused = fault_in_fresh_process(script, wait_s=FRESH_WAIT_S)
        if refused is None:
            with _trying(work, compiled_wait_s) as variants:
                found = variants()
    return refused, found


@contextmanager
def _trying(work: _Work, wait_s: float) -> Iterator[Callable[[], dict[str, str]]]:
    """Runs the script's variants in another process. Yields a function that waits for the results.

    Results within the time limit count. The process ends with the block.
    """
    if wait_s <= 0:
        yield lambda: {"compiled": "not tried (--compiled-wait-s 0)"}
        return
    until = time.monotonic() + wait_s
    result = work.scratch / "variants.json"
    names = [str(work.scratch / name) for name in ("repro.py", "made.json", "variants.json")]
    command = [sys.executable, "-m", "steadytrain.repro.variants", *names]
    quiet = subprocess.DEVNULL
    with process_group(command, folder=work.scratch, environment=_compiling(work), stdout=quiet, stderr=quiet) as child:

        def results() -> dict[str, str]:
            late = False
            try:
                child.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                late = True
            found: dict[str, str] = json.loads(result.read_text(encoding="utf-8")) if result.is_file() else {}
            if "compiled" not in found:
                found["compiled"] = f"no result within {wait_s:g} s" if late else "the compiler crashed its process"
            return found

        yield results


def _compiling(work: _Work) -> dict[str, str]:
    """A private cache leaves nothing behind. One thread avoids starting a pool of compilers."""
    return {
        **os.environ,
        "TORCHINDUCTOR_CACHE_DIR": str(work.scratch / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }


def _put(work: _Work, folder: Path, finding: Finding, made: dict[str, Any], variants: dict[str, str]) -> Repro:
    """Writes everything to the folder, the script last."""
    from steadytrain.repro.issue import Subject, issue_text

    known = documented(made)
    files, lines = put_down(
        work.scratch,
        folder,
        lambda text, size: issue_text(Subject(work.bundle, finding, made, variants, text, size)),
        name=ISSUE if known is None else NOTE,
    )
    why = f"{made['title']}; verified in a fresh process"
    recorded = work.bundle.incident.finding.located
    if recorded is not None and finding.located is not None and recorded.operation != finding.located.operation:
        why += f"; the incident named another operation, {recorded.operation}"
    if known is not None:
        why += f"; documented, so no bug of PyTorch: {known.behaviour}"
    if not made["finished"]:
        why += "; it is not the smallest: the time ran out"
    return Repro(True, why, files, lines, facts=made, variants=variants, finding=finding)


def repro_document(source: Path, folder: Path, repro: Repro) -> dict[str, Any]:
    facts = repro.facts or {}
    return {
        "schema": "steadytrain.repro/1",
        "incident": str(source),
        "made": repro.made,
        "why": repro.why,
        "folder": str(folder) if repro.files else None,
        "files": dict(repro.files),
        "lines": repro.lines,
        "operations": facts.get("operations", []),
        "produced": facts.get("produced"),
        "backward": facts.get("backward"),
        "device": facts.get("device"),
        "inputs": facts.get("inputs", []),
        "shape": facts.get("shape"),
        "loss": {name: facts[name] for name in ("usual", "peak", "low", "high", "limit")} if "shape" in facts else None,
        "variants": dict(repro.variants),
        "rows": dict(repro.rows),
        "located": repro.finding.located.to_json() if repro.finding and repro.finding.located else None,
        "search": repro.finding.why if repro.finding else None,
    }
