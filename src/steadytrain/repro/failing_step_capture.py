"""The launched side of a capture: traces the failing step with a trail and extracts programs from it.

Run as ``python -m steadytrain.repro.failing_step_capture BUNDLE FOLDER``. It reads ``request.json`` in FOLDER and
writes
``captured.json`` and ``captured.pt`` there. A request may ask for the script's own updates, if an optimizer broke the
weights. A second request names the values to keep if the first capture could not hold all.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadytrain.core.incident import Finding
from steadytrain.replay.command_runner import as_program, leave, run_recorded, tell
from steadytrain.storage.bundle import Bundle, open_bundle, write_json

if TYPE_CHECKING:
    from torch import Tensor

    from steadytrain.repro.trail import Trail, Wanted
    from steadytrain.tracing.value_origins import Record

REQUEST = "request.json"
RESULT = "captured.json"
TENSORS = "captured.pt"


@dataclass(frozen=True)
class Request:
    """What to capture. ``before`` is the number of extra operations; ``update`` traces the script's own updates.

    ``whole_lead``: the script computes all of its own steps first, not only one. ``keep`` lists the numbers of
    operations
    and of backward nodes whose inputs are needed; None keeps all.
    """

    before: int
    update: bool = False
    whole_lead: bool = False
    keep: tuple[tuple[int, ...], tuple[int, ...]] | None = None

    @property
    def wanted(self) -> Wanted | None:
        from steadytrain.repro.trail import Wanted

        if self.keep is None:
            return None
        operations, nodes = map(frozenset, self.keep)
        return Wanted(operations, nodes)


def main(bundle_path: str, folder_name: str) -> int:
    """Runs the recorded command and writes its captured fault to the folder."""
    bundle, folder = open_bundle(Path(bundle_path)), Path(folder_name)
    request = Request(**json.loads((folder / REQUEST).read_text(encoding="utf-8")))
    attach = _attach_to_updates if request.update else _attach
    return run_recorded(bundle, lambda: attach(bundle, folder, request), scratch=folder)


def _attach(bundle: Bundle, folder: Path, request: Request) -> None:
    from steadytrain.capture.incident.context import IncidentContext
    from steadytrain.capture.settings import Settings
    from steadytrain.capture.step.watcher import Watcher
    from steadytrain.detection.run_recorder import recording
    from steadytrain.replay.bundle_state import NEW_PROCESS, BundleRehearsal, lead_in_steps
    from steadytrain.repro.trail import Trail
    from steadytrain.tracing.investigator import ScriptLoopRerun

    _note_compiling()
    trail = Trail(request.wanted)
    laps: list[ScriptLoopRerun] = []
    roots: list[Tensor] = []

    class _Lap(ScriptLoopRerun):
        def backward_begins(self, root: Tensor) -> None:
            roots.append(root)
            super().backward_begins(root)

    def rerun(incident_context: IncidentContext) -> ScriptLoopRerun:
        laps.append(_Lap(incident_context, method=NEW_PROCESS, observer=trail, from_batch=True))
        return laps[0]

    def done(finding: Finding) -> None:
        _leave(folder, request, finding, laps[0].culprit() if laps else None, trail, roots)

    settings = Settings(run_dir=folder / "unused", run_name="repro", policy="observe")
    lead = lead_in_steps(bundle) if request.whole_lead else 1

    class _Rehearsal(BundleRehearsal):
        def begins_after(self, step: int) -> bool:
            return step >= lead

    Watcher(settings, tell=tell, record=recording(), rehearsal=_Rehearsal(bundle, done, rerun=rerun))


def _attach_to_updates(bundle: Bundle, folder: Path, request: Request) -> None:
    from steadytrain.repro.broken_updates import look_at_updates

    def leave(finding: Finding, culprit: Record | None, trail: Trail) -> None:
        _leave(folder, request, finding, culprit, trail)

    look_at_updates(bundle.incident.step, request.wanted, leave)


compiled_calls: list[str] = []
"""Not empty after the launched script has called ``torch.compile``."""


def _note_compiling() -> None:
    """Records whether the script calls ``torch.compile``. The rerun is eager and does not show it."""
    import torch

    compile_it = torch.compile

    @functools.wraps(compile_it)
    def noted(*args: Any, **kwargs: Any) -> Any:
        del compiled_calls[1:]
        compiled_calls.append("torch.compile")
        return compile_it(*args, **kwargs)

    torch.compile = noted


def _leave(
    folder: Path,
    request: Request,
    finding: Finding,
    culprit: Record | None,
    trail: Trail,
    roots: Sequence[Tensor] = (),
) -> None:
    """Writes the capture and ends the process without the script's exit code, which might save."""
    try:
        document = _eager_loss(folder, finding, trail, roots) or _document(folder, request, finding, culprit, trail)
    except Exception as error:  # our own error must not let the launched script train on
        document = {"why": f"the capture itself failed: {type(error).__name__}: {error}", "programs": []}
    write_json(folder / RESULT, {"finding": finding.to_json(), **document})
    leave()


def _eager_loss(folder: Path, finding: Finding, trail: Trail, roots: Sequence[Tensor]) -> dict[str, Any] | None:
    """The whole loss as a program, if the script compiles code and the eager rerun came out finite."""
    import torch

    from steadytrain.repro.arguments import CannotWriteError
    from steadytrain.repro.program import program_to_json
    from steadytrain.repro.step_capture import loss_program
    from steadytrain.tracing.tracer import NOT_REPRODUCED

    if finding.located is not None or not finding.why.startswith(NOT_REPRODUCED) or not roots:
        return None
    if not compiled_calls:
        return None
    try:
        program, _ = loss_program(trail, roots, ())
        compiled = program_to_json(program)
    except CannotWriteError as refusal:
        return {
            "why": f"the step is finite in eager mode, and its loss cannot be extracted: {refusal}",
            "programs": [],
        }
    torch.save(program.inputs, folder / TENSORS)
    return {"why": None, "programs": [], "compiled": compiled}


def _document(folder: Path, request: Request, finding: Finding, culprit: Record | None, trail: Trail) -> dict[str, Any]:
    import torch

    from steadytrain.repro.arguments import CannotWriteError
    from steadytrain.repro.operation_cone import Cut, cuts, lacks_values, program_of, wanted_by
    from steadytrain.repro.program import program_to_json

    if finding.located is None or culprit is None:
        return {"why": finding.why, "programs": []}
    if not culprit.born or culprit.number is None:
        return {"why": finding.why, "programs": []}
    if culprit.number not in trail.entries:
        return {"why": f"{culprit.operation} could not be recorded with its inputs", "programs": []}
    programs: list[Any] = []
    tensors: dict[str, torch.Tensor] = {}
    found: list[Cut] = []
    why = None
    try:
        found += cuts(trail, culprit.number, culprit.kind, before=request.before)
    except CannotWriteError as refusal:
        why = str(refusal)
    if lacks_values(trail, found):
        wanted = wanted_by(trail, found)
        return {"why": None, "programs": [], "keep": [sorted(wanted.operations), sorted(wanted.nodes)]}
    for cut in found:
        try:
            for program in program_of(trail, cut, culprit.kind):
                lead = f"{len(programs)}."
                programs.append(program_to_json(program))
                tensors |= {lead + name: tensor for name, tensor in program.inputs.items()}
        except CannotWriteError as refusal:
            why = why or str(refusal)
    torch.save(tensors, folder / TENSORS)
    return {"why": why, "programs": programs, "kind": int(culprit.kind)}


if __name__ == "__main__":
    as_program(main)
