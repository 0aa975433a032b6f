"""A recording as live values for the replaying process: steps, batches, random states and snapshots.

Documents are read once, tensors one by one on access.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from steadytrain.capture.snapshots.digests import digest
from steadytrain.capture.snapshots.random_parts import random_from_parts
from steadytrain.capture.step.gate import Measurement
from steadytrain.capture.step.input_recorder import RandomState
from steadytrain.core.bounded_files import check_size
from steadytrain.core.errors import UsageError
from steadytrain.storage.tape_files import (
    MODEL_LEAD,
    OTHERS_LEAD,
    Chunk,
    Recording,
    Snapshot,
    read_chunk,
    read_snapshot,
)
from steadytrain.storage.tree import decode

NOT_AS_WRITTEN = "the file differs from what the run wrote; `steadytrain replay --from` starts from another snapshot"


class Tensors(Mapping[str, Tensor]):
    """The tensors of a safetensors file, read on access. ``places`` maps further names to keys.

    Raises:
        UsageError: on construction, if the file is damaged.
    """

    def __init__(self, path: Path, places: Mapping[str, str]) -> None:
        try:
            check_size(path)
            self._file = safe_open(path, framework="pt")
        except Exception as error:  # safetensors raises its own error type
            raise UsageError(f"{path}: not readable ({error})") from None
        self._keys: set[str] = set(self._file.keys())  # type: ignore[no-untyped-call]
        self._places = places

    def __getitem__(self, name: str) -> Tensor:
        key = self._places.get(name, name)
        if key not in self._keys:
            raise KeyError(name)
        tensor: Tensor = self._file.get_tensor(key)  # type: ignore[no-untyped-call]
        return tensor

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._places.get(name, name) in self._keys

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)


class RecordedStep:
    def __init__(self, document: Mapping[str, Any], chunk: OpenChunk) -> None:
        self.document = document
        self._chunk = chunk

    @property
    def calls(self) -> list[dict[str, Any]]:
        calls: list[dict[str, Any]] = self.document["calls"]
        return calls

    @property
    def no_update(self) -> bool:
        """Whether the script let the step go without an update."""
        return bool(self.document.get("no_update"))

    @property
    def refused(self) -> bool:
        """Whether steadytrain refused or skipped the update of the step."""
        return bool(self.document.get("refused"))

    @property
    def without_state(self) -> bool:
        """Whether it is the first step of an optimizer that took the place of another one, and had no state."""
        return bool(self.document.get("renewed", {}).get("without_state"))

    def why_not(self, optimizers: Sequence[torch.optim.Optimizer], *, evaluations: int, skipped: bool) -> str | None:
        """Why ``optimizers`` cannot make this step.

        ``evaluations`` counts the calls of a closure in it, and ``skipped`` says whether the script left out steps.
        """
        if self.document["evaluations"] > 1 or evaluations > 1:
            step = self.document["step"]
            return f"step {step}: the optimizer evaluates its closure several times, which no tape records"
        wanted = self.document.get("renewed", {}).get("classes", ())
        for one, name in zip(optimizers, wanted if skipped else (), strict=False):
            if type(one).__qualname__ != name:
                return (
                    f"step {self.document['step']} was the first one of a new {name}, and the launched script, which "
                    f"left out steps, still has its {type(one).__qualname__} (--lead-s)"
                )
        return None

    def skips(self, measured: Measurement) -> bool:
        """Whether the update is to be skipped as it was: not if a changed step is finite where this one was not."""
        if not self.refused or measured.is_incident:
            return self.refused
        numbers = [*self.document["losses"], *self.gradient_norms.values()]
        return all(math.isfinite(float.fromhex(number)) for number in numbers)

    @property
    def others(self) -> list[OtherUpdate]:
        """The updates of other optimizers within the step, in their order."""
        return [OtherUpdate(one, self) for one in self.document.get("others", ())]

    @property
    def gradient_factor(self) -> float:
        """What an intervention multiplied its gradients by."""
        return float.fromhex(self.document.get("gradient_factor", "0x1p+0"))

    def value(self, tree: Any) -> Any:
        """Decodes a tree with this step's tensors. Values that were not kept become
        :class:`~steadytrain.storage.tree.Opaque`."""
        return decode(tree, self._chunk.tensors)

    def digest(self, place: str) -> str:
        return self._chunk.places[place]

    def random(self, call: int, moment: str) -> RandomState | None:
        """The random state of a call at ``moment``: ``random_before``, ``random`` (at its start) or
        ``random_after``."""
        keys = self.calls[call][moment]
        return None if keys is None else self._chunk.random(keys)

    @property
    def gradient_norms(self) -> dict[str, str]:
        """The norm of each gradient by tensor name, as exact hex text."""
        return _norms(self.value(self.document["gradient_norms"]))


class OtherUpdate:
    """The update of another optimizer within a recorded step."""

    def __init__(self, document: Mapping[str, Any], step: RecordedStep) -> None:
        self.stream = str(document["stream"])
        self.skipped = bool(document["skipped"])
        self.refused = bool(document["refused"])
        self.losses: list[str] = document["losses"]
        self.gradient_factor = float.fromhex(document["gradient_factor"])
        self._document = document
        self._step = step

    @property
    def gradient_norms(self) -> dict[str, str]:
        return _norms(self._step.value(self._document["gradient_norms"]))

    @property
    def groups(self) -> Any:
        return self._step.value(self._document["groups"])


def _norms(value: Mapping[str, Any]) -> dict[str, str]:
    return {name: float(norm).hex() for name, norm in zip(value["names"], value["norms"].tolist(), strict=True)}


class OpenChunk:
    """A chunk of the tape with its parsed document."""

    def __init__(self, chunk: Chunk) -> None:
        document = read_chunk(chunk)
        self.places: dict[str, str] = document["places"]
        self.tensors = Tensors(chunk.tensors, self.places)
        self.first_fetched: dict[str, int] = document["first_fetched"]
        self._random: dict[str, Any] = document["random"]
        self.steps = {int(step["step"]): RecordedStep(step, self) for step in document["steps"]}

    def random(self, keys: Mapping[str, Any]) -> RandomState:
        wanted = [key for key in (keys["python"], keys["numpy"], keys["torch"], *keys["cuda"]) if key is not None]
        return random_from_parts(keys, {key: decode(self._random[key], self.tensors) for key in wanted})


class RecordedSteps:
    """The tape of a recording. Chunks are opened on access."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._open: dict[Path, OpenChunk] = {}

    def step(self, number: int) -> RecordedStep | None:
        chunk = self._recording.chunk_of(number)
        return None if chunk is None else self._opened(chunk).steps.get(number)

    def first_fetched(self, number: int) -> dict[int, int]:
        """How many batches each data set had returned at the gate of the run's first step."""
        chunk = self._recording.chunk_of(number)
        counts = self._opened(chunk).first_fetched if chunk is not None else {}
        return {int(dataset): count for dataset, count in counts.items()}

    def fetched_before(self, number: int, dataset: int) -> int:
        """How many batches the data set had returned at the last gate before step ``number``."""
        before, first = self.step(number - 1), self.step(number)
        if before is not None:
            return int(before.document["fetched"].get(str(dataset), 0))
        fetches = first.document["fetches"] if first else []
        numbers = [fetch["number"] for fetch in fetches if fetch["dataset"] == dataset]
        counted = int(first.document["fetched"].get(str(dataset), 0)) if first else 0
        return min(numbers) - 1 if numbers else counted

    def fetch(self, dataset: int, number: int, *, near: int) -> tuple[RecordedStep, dict[str, Any]] | None:
        """The ``number``-th batch of ``dataset``; None if it is not on the tape. The search starts at step ``near``."""
        at = near
        while (step := self.step(at)) is not None and int(step.document["fetched"].get(str(dataset), 0)) >= number:
            at -= 1
        while (step := self.step(at + 1)) is not None:
            at += 1
            for fetch in step.document["fetches"]:
                if fetch["dataset"] == dataset and fetch["number"] == number:
                    return step, fetch
            if int(step.document["fetched"].get(str(dataset), 0)) >= number:
                return None
        return None

    def damaged(self, first: int, last: int) -> str | None:
        """Describes a damaged chunk among those of the steps; None if every tensor matches its key, which is its
        digest."""
        for chunk in self._recording.chunks:
            if chunk.first <= last and first <= chunk.last:
                tensors = self._opened(chunk).tensors
                if any(digest(tensors[key]) != key for key in tensors):
                    return f"the tape of the steps {chunk.first} to {chunk.last} is damaged: {NOT_AS_WRITTEN}"
        return None

    def _opened(self, chunk: Chunk) -> OpenChunk:
        if chunk.document not in self._open:
            self._open[chunk.document] = OpenChunk(chunk)
        return self._open[chunk.document]


class RecordedState:
    """A snapshot with its parsed document: the part of its stream, or with ``other`` that of one which takes turns."""

    def __init__(self, snapshot: Snapshot, other: int | None = None) -> None:
        self.step = snapshot.step
        self._snapshot = snapshot
        self._document = read_snapshot(snapshot)
        self._lead = "" if other is None else f"{OTHERS_LEAD}{other}/"
        self._model_lead = self._lead + MODEL_LEAD
        self._part: dict[str, Any] = self._document if other is None else self._document["others"][other]
        self.stream = str(self._part.get("stream", "main"))
        self.digests: dict[str, str] = self._document["digests"]
        self.aliases: dict[str, str] = self._document["aliases"]
        self.not_kept = [
            one.removeprefix(self._lead) for one in self._document["not_kept"] if one.startswith(self._lead)
        ]
        self.frozen: frozenset[str] = frozenset(self._part["frozen"])
        self.tensors = Tensors(snapshot.tensors, self.aliases)

    @property
    def others(self) -> list[RecordedState]:
        """The states of the streams that take turns with this one."""
        return [RecordedState(self._snapshot, number) for number in range(len(self._document.get("others", ())))]

    @property
    def model(self) -> dict[str, str]:
        """The digest of each parameter and buffer by name. Tied ones appear under each name."""
        lead = self._model_lead
        own = {name: value for name, value in self.digests.items() if name.startswith(lead)}
        tied = {name: self.digests[other] for name, other in self.aliases.items() if name.startswith(lead)}
        return {name.removeprefix(lead): value for name, value in {**own, **tied}.items()}

    def damaged(self) -> str | None:
        """Describes the first damaged tensor; None if all are intact."""
        for key in sorted(self.tensors):
            if key in self.digests and digest(self.tensors[key]) != self.digests[key]:
                return f"the snapshot of step {self.step} is damaged ({key}): {NOT_AS_WRITTEN}"
        return None

    def model_tensor(self, name: str) -> Tensor:
        return self.tensors[self._model_lead + name]

    @property
    def optimizers(self) -> list[dict[str, Any]]:
        return [decode(tree, self.tensors) for tree in self._part["optimizers"]]

    @property
    def optimizer_digests(self) -> list[Any]:
        """Like ``optimizers``, with digests instead of tensors."""
        digests = {**self.digests, **{name: self.digests[other] for name, other in self.aliases.items()}}
        return [decode(tree, digests) for tree in self._part["optimizers"]]

    @property
    def scalers(self) -> list[dict[str, Any]]:
        scalers: list[dict[str, Any]] = decode(self._document["scalers"], self.tensors)
        return scalers
