"""One incident as shown: where it began, what was not finite, and what was done about it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import BadTensor, Incident, Located, Samples
from steadytrain.core.model import Symptom, Window
from steadytrain.grouping.gravest import gravity
from steadytrain.report.action_words import left_course
from steadytrain.report.look import look_facts
from steadytrain.report.report_values import IncidentPart, Place
from steadytrain.report.wording import Fact, clean, count, enumerated, number, step_range
from steadytrain.statistics.rank_rows import ranks_named
from steadytrain.statistics.run_away import left_course_at
from steadytrain.storage.bundle import open_for_report
from steadytrain.storage.rank_group import world_of
from steadytrain.storage.step_look import read_look
from steadytrain.storage.tape_files import find_recording

INCIDENTS_MAX = 8
PARAMETERS_MAX = 24
TENSORS_MAX = 8
CHAIN_MAX = 24
BATCHES_MAX, SAMPLES_MAX = 4, 8


def open_incidents(
    paths: Sequence[Path], known: Sequence[Symptom] = (), names: Mapping[str, str] | None = None
) -> tuple[list[IncidentPart], list[str]]:
    """The readable incidents, gravest first, and notes about the others.

    Args:
        paths: the bundles.
        known: the symptoms of the run as they ended; an incident has them as they were when it was kept.
        names: what the run's streams are called, where it has several.
    """
    opened: list[Opened] = []
    notes = []
    for path in paths[:INCIDENTS_MAX]:
        try:
            bundle = open_for_report(path)
            incident, off = with_newest(bundle.incident, known), ran_away(bundle.incident, bundle.scalars, path)
            opened.append(Opened(incident, path, off, rank_of(bundle.environment)))
        except UsageError as error:
            notes.append(f"Incident not opened: {error}")
    opened.sort(key=lambda one: (gravity(one.incident), one.loss_finite))
    parts = [
        incident_part(one.incident, one.path, names, off=one.off, rank=one.rank, follow=follow)
        for one, follow in with_followers(opened)
    ]
    if len(paths) > INCIDENTS_MAX:
        notes.append(f"{len(paths)} incidents are recorded; the first {INCIDENTS_MAX} are shown.")
    return parts, notes


@dataclass(frozen=True)
class Opened:
    """An incident that was read. ``off`` is what :func:`ran_away` says of it; ``rank`` is None in a run of one
    process."""

    incident: Incident
    path: Path
    off: str
    rank: int | None

    @property
    def loss_finite(self) -> bool:
        return all(math.isfinite(loss) for loss in self.incident.losses)


def with_followers(opened: Sequence[Opened]) -> list[tuple[Opened, str]]:
    """Each incident with a sentence on the ranks that only got its gradient: those are left out. "" without such."""
    found: list[tuple[Opened, list[int]]] = []
    for one in opened:
        led = [others for first, others in found if _is_consequence(one, first)]
        if led and one.rank is not None:
            led[0].append(one.rank)
        else:
            found.append((one, []))
    return [(first, _following(first.rank, others)) for first, others in found]


def _is_consequence(one: Opened, first: Opened) -> bool:
    """Whether only the gradient of ``one`` is bad, in the step in which the loss of the rank ``first`` is."""
    same = (one.incident.step, one.incident.stream) == (first.incident.step, first.incident.stream)
    bad = one.incident.kind == first.incident.kind == "nonfinite"
    return same and bad and one.rank != first.rank and one.loss_finite and not first.loss_finite


def _following(rank: int | None, others: Sequence[int]) -> str:
    if not others:
        return ""
    return (
        f"The loss of {ranks_named(others)} was finite in this step, and only the gradient was not: it came there from "
        f"rank {rank}, when the ranks shared their gradients"
    )


def rank_of(environment: Mapping[str, Any]) -> int | None:
    """The rank that a bundle is of; None in a run of one process."""
    rank = environment.get("rank")
    return rank if world_of(environment) > 1 and isinstance(rank, int) else None


def with_newest(incident: Incident, known: Sequence[Symptom]) -> Incident:
    """``incident`` with its symptoms as they are in ``known``."""
    newest = {(one.name, one.stream, one.first_step): one for one in known}
    symptoms = [newest.get((one.name, one.stream, one.first_step), one) for one in incident.symptoms]
    return replace(incident, symptoms=tuple(symptoms))


def ran_away(incident: Incident, window: Window, bundle: Path) -> str:
    """That the loss left its course before the update that was refused, and where weights from before are; "" if it
    did not, or no update was refused."""
    same = incident.action.what == "refused-update" and incident.stream == window.stream
    left_at = left_course_at(window, incident.step) if same else None
    if left_at is None:
        return ""
    kept = [shot for shot in find_recording(bundle).snapshots if shot.step < left_at]
    return left_course(left_at, max(kept, key=lambda shot: shot.step).tensors.parent.name if kept else "")


def incident_part(
    incident: Incident,
    path: Path,
    names: Mapping[str, str] | None = None,
    *,
    off: str = "",
    rank: int | None = None,
    follow: str = "",
) -> IncidentPart:
    """``incident`` as shown.

    Args:
        names: those of a run's streams.
        off: what :func:`ran_away` says of it.
        rank: of several, the one that it is of.
        follow: what it did to other ranks.
    """
    located = incident.finding.located
    parameters = [_bad_tensor(tensor) for tensor in incident.parameters[:PARAMETERS_MAX]]
    if len(incident.parameters) > PARAMETERS_MAX:
        parameters.append(Fact("…", f"and {len(incident.parameters) - PARAMETERS_MAX} more"))
    losses = enumerated([number(loss) for loss in incident.losses], TENSORS_MAX)
    if incident.loss_origin and losses:
        losses += f" (from {clean(incident.loss_origin)})"
    notes = (
        f"Batches: {incident.batch_note}" if incident.batch_note else "",
        *(f"Samples: {samples_text(one, alone=len(incident.samples) == 1)}" for one in incident.samples[:BATCHES_MAX]),
        f"State: {incident.state_note}" if incident.state_note else "",
    )
    look, unread = _look(path)
    at = incident.symptoms[0].at if incident.symptoms else None
    return IncidentPart(
        title=incident_verdict(incident, rank),
        path=str(path),
        step=incident.step,
        place=_place(located) if located else None,
        why=clean(incident.finding.why) if incident.kind == "nonfinite" else "",
        losses=losses,
        parameters=tuple(parameters),
        action=_action_sentence(incident, off),
        notes=tuple(clean(note) for note in (*notes, unread) if note),
        look=(*([Fact("other ranks", clean(follow))] if follow else ()), *look),
        is_note=incident.is_note,
        parameters_count=len(incident.parameters),
        line=clean(at.place) if at is not None else "",
        code=clean(at.code) if at is not None else "",
        subject=_subject(incident, names or {}),
    )


def _subject(incident: Incident, names: Mapping[str, str]) -> str:
    first = incident.symptoms[0] if incident.symptoms else None
    stream = names.get(incident.stream, "")
    return " of ".join(clean(part) for part in (first.name if first is not None else "", stream) if part)


def samples_text(samples: Samples, *, alone: bool) -> str:
    """The samples of a batch, non-finite ones first."""
    which = "" if alone else f"of batch {samples.batch}, "
    every = enumerated([str(index) for index in samples.indices], SAMPLES_MAX)
    told = f"{which}{len(samples.indices)} of {samples.dataset}: {every}"
    if samples.later_rows:
        later = enumerated([str(row) for row in samples.later_rows], SAMPLES_MAX)
        lines = f", changed on the way by {enumerated(list(samples.later_lines), SAMPLES_MAX)}"
        told = f"NaN or Inf came in after the loader in row {later}{lines if samples.later_lines else ''}; {told}"
    if not samples.nonfinite_rows:
        return told
    bad = enumerated([f"{samples.named(row)} (row {row})" for row in samples.nonfinite_rows], SAMPLES_MAX)
    fields = enumerated([repr(field) for field in samples.nonfinite_fields], SAMPLES_MAX)
    return f"{bad} with NaN or Inf{f' in {fields}' if fields else ''}; {told}"


def _look(path: Path) -> tuple[tuple[Fact, ...], str]:
    """What `steadytrain locate` stored, if anything; else why it cannot be read."""
    try:
        look = read_look(path)
    except UsageError as error:
        return (), str(error)
    return (tuple(look_facts(look)) if look is not None else ()), ""


def incident_verdict(incident: Incident, rank: int | None = None) -> str:
    """What heads an incident; ``rank`` is that of a run of several."""
    located, on = incident.finding.located, "" if rank is None else f" on rank {rank}"
    if incident.kind == "symptom" and incident.symptoms:
        first = incident.symptoms[0]
        return f"{first.severity}: {clean(first.name)}{on} at {step_range(first)}: {clean(first.message)}"
    if located is None:
        seen = incident.symptoms[0].message if incident.symptoms else "a value was not finite"
        what = clean(incident.finding.came_in or seen).removesuffix(f" at step {count(incident.step)}")
        return f"Step {count(incident.step)}{on}: {what}"
    where = f" in {clean(located.module)}" if located.module else ""
    line = f", {clean(_short_line(located))}" if located.file else ""
    return (
        f"Step {count(incident.step)}{on}: the first {_produced(located)} came from "
        f"{clean(located.operation_said)} ({located.phase}){where}{line}"
    )


def _action_sentence(incident: Incident, off: str) -> str:
    action = incident.action
    reason = f" ({clean(action.reason)})" if action.reason else ""
    if action.what == "refused-update" and off:
        return f"The update of step {count(action.step)} was refused, but {off}{reason}."
    if action.what == "refused-update":
        return (
            f"The update of step {count(action.step)} was refused: "
            f"weights and optimizer state are as they were before it{reason}."
        )
    if action.what == "refused-rest-of-update":
        return (
            f"The rest of the update of step {count(action.step)} was refused: its optimizer had moved the weights in "
            f"earlier evaluations of its closure{reason}."
        )
    if action.what == "skipped-update":
        return (
            f"The update of step {count(action.step)} was skipped and the training went on: "
            f"weights and optimizer state are as they were before it{reason}."
        )
    return f"steadytrain only observed step {count(action.step)} and changed nothing{reason}."


def _place(located: Located) -> Place:
    chain = [clean(name) for name in located.chain[:CHAIN_MAX]]
    if len(located.chain) > CHAIN_MAX:
        chain.append(f"and {len(located.chain) - CHAIN_MAX} more")
    return Place(
        operation=clean(located.operation_said),
        produced=_produced(located),
        phase=located.phase,
        module=_module(located),
        line=clean(f"{located.file}:{located.line}") if located.file else "not known",
        code=clean((located.code or "").strip()),
        inputs=tuple(
            Fact(clean(operand.name), clean(operand.summary())) for operand in located.inputs[:PARAMETERS_MAX]
        ),
        chain=tuple(chain),
        reached=clean(located.reached),
        method=clean(located.method),
    )


def _bad_tensor(tensor: BadTensor) -> Fact:
    shape = list(tensor.shape)
    counts = " and ".join(f"{count(bad)} {what}" for bad, what in ((tensor.nan, "NaN"), (tensor.inf, "Inf")) if bad)
    value = f"{counts or 'none bad'} of {count(tensor.count)} elements, {tensor.dtype.removeprefix('torch.')} {shape}"
    return Fact(clean(tensor.name), clean(value))


def _module(located: Located) -> str:
    if located.module:
        return clean(located.module)
    return "the model itself" if located.phase == "forward" else "outside the model's modules"


def _produced(located: Located) -> str:
    return {"nan": "NaN", "inf": "Inf"}[located.produced]


def _short_line(located: Located) -> str:
    return f"{Path(located.file or '').name}:{located.line}"
