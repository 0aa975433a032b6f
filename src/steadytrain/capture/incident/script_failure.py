"""The script is about to end by an error of its own: what tells why memory ran out or ranks lost each other is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steadytrain.capture.incident.crash import Moment, evidence_of, write_evidence
from steadytrain.capture.settings import started_at, utc_now
from steadytrain.capture.step import ranks
from steadytrain.capture.step.input_recorder import tensors_in

if TYPE_CHECKING:
    from steadytrain.capture.step.live_run import LiveRun


def keep_evidence(run: LiveRun, error: BaseException) -> None:
    """Write what there is about ``error`` into the run folder, and tell of it."""
    moment = Moment(
        created=utc_now(),
        since=started_at(run.settings),
        rank=ranks.rank(),
        step=max((stream.step for stream in run.streams), default=0) or None,
        names={
            id(parameter): name
            for stream in run.streams
            for parameter, name in zip(stream.parameters, stream.tensor_names, strict=True)
        },
        own=list(tensors_in([[batch.args, batch.kwargs] for batch in run.kept_batches()])),
        samples=run.recorder.machine_samples,
    )
    documents = evidence_of(error, moment, disk=run.settings.run_dir)
    for line in write_evidence(run.recorder.begin().path, documents) if documents else ():
        run.tell(line)
