"""Whether two processes with half of the rows each take the same step as one with all rows."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, ClassVar, final

import torch
import torch.distributed as dist
from torch import Tensor

from steadytrain.checks.subject.model_check import (
    Batch,
    CannotError,
    Check,
    Cost,
    Outcome,
    Subject,
    failed,
    not_run,
    passed,
    warned,
)
from steadytrain.checks.subject.own_steps import at_peak, distance, few_rows, gradients
from steadytrain.checks.subject.scores import scores_of
from steadytrain.core.plugins import threshold

RANKS = 2
STEPS = 3
WAIT_S_MAX = 30.0
ANSWER_BYTES_MAX = 1 << 20


@final
@dataclass(frozen=True)
class DataParallelEquivalence(Check):
    """Two processes with half of the rows each get the gradient of one process with all rows.

    Means:
        Two processes on this machine (gloo, on copies) take half of a batch each and average their gradients, as data
        parallel training does. The check compares the result with the gradient of the whole batch, and the two
        processes' weights after three steps. A different gradient means that the same settings on more GPUs train
        another model. Different weights mean that each process decides something alone: the ranks drift apart, or hang
        waiting for each other.

    Causes:
        - a loss that is a sum, or divided by the rows of one process
        - rows of unequal length: a mean of means gives tokens of short rows more weight
        - a loss that compares rows of a batch with each other (contrastive), or statistics of a batch in the loss
        - parameters that forward writes, or that are updated outside the optimizer

    Next:
        1. Divide the sum of all losses by the number of all targets, over all processes.
        2. Gather the inputs of a loss over pairs from all processes.
        3. Seed every process alike before creating the model, and draw data by rank.
    """

    cost: ClassVar[Cost] = "minutes"
    quick: ClassVar[bool] = True
    source: ClassVar[str] = "transformers PR 34191, #35438; pytorch #48188, #128949"

    difference: float = threshold(1e-4, "relative difference of gradients in float32")
    difference_low: float = threshold(3e-2, "the same where weights are in half precision")

    def inspect(self, subject: Subject) -> Outcome:
        why = _cannot(subject)
        if why:
            return not_run(why)
        batch = few_rows(subject)[0]
        assert batch.rows is not None
        rows = batch.rows - batch.rows % RANKS
        halves = [batch.taken(range(rank * rows // RANKS, (rank + 1) * rows // RANKS)) for rank in range(RANKS)]
        subject.model.eval()  # dropout and batch statistics are other matters
        whole = gradients(subject, batch.taken(range(rows)))
        if not all(bool(torch.isfinite(tensor).all()) for tensor in whole.values()):
            return not_run("the gradient of the first batch is not finite")
        torch.manual_seed(7)
        if distance(whole, gradients(subject, batch.taken(range(rows)))) > self.difference:
            return not_run("the loss of the same rows is another each time, in evaluation mode too")
        parts = [gradients(subject, half) for half in halves]
        counts = [_targets(subject, half) for half in halves]
        subject.model.train()
        answers = _in_processes(subject, halves, whole)
        numbers = self._numbers(whole, parts, counts, answers)
        return self._judged(subject, numbers)

    def _numbers(
        self,
        whole: Mapping[str, Tensor],
        parts: list[dict[str, Tensor]],
        counts: list[int | None],
        answers: list[dict[str, Any]],
    ) -> dict[str, Any]:
        mean = _mixed(whole, parts, [1.0 / RANKS] * RANKS)
        dot, norm = 0.0, 0.0
        for name, tensor in whole.items():
            dot += float((mean[name].double() * tensor.double()).sum())
            norm += float(tensor.double().square().sum())
        factor = dot / norm if norm else 1.0
        scaled = {name: tensor * factor for name, tensor in whole.items()}
        numbers: dict[str, Any] = {
            "difference": answers[0]["difference"],
            "factor": factor,
            "difference_beside_factor": distance(scaled, mean),
            "weights_equal": answers[0]["digest"] == answers[1]["digest"],
            "targets": counts,
            "steps": STEPS,
        }
        if all(counts):
            total = sum(count or 0 for count in counts)
            weighted = _mixed(whole, parts, [(count or 0) / total for count in counts])
            numbers["difference_by_targets"] = distance(whole, weighted)
        return numbers

    def _judged(self, subject: Subject, numbers: dict[str, Any]) -> Outcome:
        low = any(p.dtype in (torch.float16, torch.bfloat16) for p in subject.model.parameters())
        limit = self.difference_low if low else self.difference
        if not numbers["weights_equal"]:
            return failed(
                f"after {STEPS} steps the two processes have different weights",
                meaning="Something is decided in each process by itself, or weights are changed outside of the "
                "optimizer: with several GPUs the ranks train different models.",
                **numbers,
            )
        if numbers["difference"] <= limit:
            return passed(f"the averaged gradient of two processes differs by {numbers['difference']:.1g}", **numbers)
        grave = failed if int(os.environ.get("WORLD_SIZE", "1")) > 1 else warned
        if numbers.get("difference_by_targets", 1.0) <= 10 * limit:
            by = f"{numbers['difference']:.1%}"
            told = f"rows of unequal length: the mean of two means differs by {by} from the mean over all targets"
            if grave is failed:
                return failed(told, **numbers)
            return passed(f"{told}, should this be trained on several GPUs", **numbers)
        if _is_shared_out(subject.batches[0]) and abs(RANKS * numbers["factor"] - 1.0) < 0.01:
            return passed(
                "the trainer divides by the targets of the whole step, and two processes share them", **numbers
            )
        if numbers["difference_beside_factor"] <= 10 * limit:
            return grave(
                f"the averaged gradient of two processes is {numbers['factor']:.3g} times that of one: the loss is no "
                "mean over its rows",
                **numbers,
            )
        return grave(
            f"the averaged gradient of two processes differs by {numbers['difference']:.1%}: rows of a batch act on "
            "the loss of others",
            **numbers,
        )


def _cannot(subject: Subject) -> str:
    if not hasattr(os, "fork") or not dist.is_available() or not dist.is_gloo_available():
        return "this system has no fork, or torch no gloo"
    if dist.is_initialized():
        return "the script is one of several processes already"
    if any(p.device.type != "cpu" for p in subject.model.parameters()) or _uses_cuda():
        return "the model is on a GPU, and a process that uses one cannot be forked"
    rows = subject.batches[0].rows
    if not rows or rows < 2 * RANKS:
        return f"the first batch has {rows or 'no'} rows that can be told apart; at least {2 * RANKS} are halved"
    if not subject.optimizers:
        return "no optimizer was found"
    return ""


def _uses_cuda() -> bool:
    begun: Any = torch.cuda.is_initialized
    return bool(begun())


def _mixed(
    like: Mapping[str, Tensor], parts: Sequence[Mapping[str, Tensor]], weights: Sequence[float]
) -> dict[str, Tensor]:
    """The weighted sum of gradients. A gradient that a part lacks counts as zero."""
    mixed = {name: torch.zeros_like(tensor) for name, tensor in like.items()}
    for part, weight in zip(parts, weights, strict=True):
        for name in mixed.keys() & part.keys():
            mixed[name] += weight * part[name]
    return mixed


def _is_shared_out(batch: Batch) -> bool:
    """Whether a trainer passes the number of targets in the whole step, over all its processes."""
    return any("num_items" in name for name in (*batch.values, *batch.kwargs, *batch.tensors()))


def _targets(subject: Subject, batch: Batch) -> int | None:
    """Number of targets that the loss counts in a batch, None if unknown."""
    try:
        scores = scores_of(subject.look(batch), batch.rows)
    except CannotError:
        return None
    return int(scores.counted.sum()) if scores is not None else None


def _in_processes(subject: Subject, halves: list[Batch], whole: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """The answers of two processes.

    Raises:
        CannotError: one of them failed or timed out.
    """
    until = time.monotonic() + max(1.0, min(WAIT_S_MAX, subject.time_left()))
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "meeting"
        children = [_fork(subject, halves, whole, rank, meeting, until - time.monotonic()) for rank in range(RANKS)]
        try:
            texts = [_read(pipe, until) for _, pipe in children]
        finally:
            for process, pipe in children:
                os.close(pipe)
                _end(process)
    answers = [json.loads(text) for text in texts if text]
    errors = [answer["error"] for answer in answers if "error" in answer]
    if errors:
        raise CannotError(f"one of the two processes failed: {errors[0]}")
    if len(answers) < RANKS:
        raise CannotError("the two processes did not come to an end in time; they were ended")
    return answers


def _fork(
    subject: Subject, halves: list[Batch], whole: Mapping[str, Tensor], rank: int, meeting: Path, seconds: float
) -> tuple[int, int]:
    """Fork this process. The child only writes its answer to a pipe. Returns its process id and the pipe."""
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # our waiting threads hold no lock that the child needs
        process = os.fork()
    if process:
        os.close(theirs)
        return process, ours
    try:
        silent = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(silent, stream)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        torch.set_num_threads(1)  # the parent's threads do not exist here
        answer = _rank(subject, halves, whole, rank, meeting, seconds)
    except BaseException as error:  # the child ends here: nothing of the parent's may run twice
        answer = {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"}
    try:
        os.write(theirs, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _rank(
    subject: Subject, halves: list[Batch], whole: Mapping[str, Tensor], rank: int, meeting: Path, seconds: float
) -> dict[str, Any]:
    dist.init_process_group(
        "gloo",
        init_method=f"file://{meeting}",
        rank=rank,
        world_size=RANKS,
        timeout=timedelta(seconds=max(1.0, seconds)),
    )
    subject.model.eval()
    averaged = _averaged(gradients(subject, halves[rank]), whole)
    difference = distance(whole, averaged)
    subject.model.train()
    torch.manual_seed(1000 + rank)  # every rank draws its own dropout
    optimizer = at_peak(subject)
    for _ in range(STEPS):
        own = gradients(subject, halves[rank])
        mean = _averaged(own, whole)
        for name, parameter in subject.model.named_parameters():
            parameter.grad = mean.get(name)
        optimizer.step()
    return {"difference": difference, "digest": _digest(subject)}


def _averaged(own: Mapping[str, Tensor], whole: Mapping[str, Tensor]) -> dict[str, Tensor]:
    found = {}
    for name, like in whole.items():
        tensor = own[name].clone() if name in own else torch.zeros_like(like)
        dist.all_reduce(tensor)
        found[name] = tensor / RANKS
    return found


def _digest(subject: Subject) -> str:
    import hashlib

    digest = hashlib.blake2b(digest_size=16)
    for name, parameter in subject.trainable().items():
        digest.update(name.encode())
        digest.update(parameter.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read(pipe: int, until: float) -> str:
    """Everything that a child wrote, "" if it timed out."""
    parts: list[bytes] = []
    while sum(map(len, parts)) < ANSWER_BYTES_MAX:
        ready, _, _ = select.select([pipe], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return ""
        part = os.read(pipe, 1 << 16)
        if not part:
            break
        parts.append(part)
    return b"".join(parts).decode()


def _end(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
