"""The data set samples in the batches of a recorded step, found by matching loader output with model input on the
tape.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Samples
from steadytrain.storage.tape_files import LEAD_STEPS, Recording, read_chunk

Given = tuple[frozenset[str], Samples]
Mark = TypeVar("Mark", bound=Hashable)
Batch = TypeVar("Batch")


def samples_of_step(recording: Recording, step: int) -> tuple[Samples, ...]:
    """The samples of each model call whose batch can be matched, by the digests of shared tensors.

    Trainers fetch batches ahead, so the search includes loader output of earlier steps.

    Raises:
        UsageError: the tape is damaged.
    """
    steps = {number: (document, places) for number, document, places in _steps(recording, step)}
    if step not in steps:
        return ()
    given = [fetch for document, places in steps.values() for fetch in _given(document, places)]
    document, places = steps[step]
    found = []
    for call in range(len(document["calls"])):
        samples = sharing_most(_digests(f"s{step}c{call}", places), given)
        if samples is not None:
            found.append(replace(samples, batch=call))
    return tuple(found)


def sharing_most(wanted: frozenset[Mark], given: Iterable[tuple[frozenset[Mark], Batch]]) -> Batch | None:
    """The batch that shares the most tensors with a call of the model, None if no batch or several match best."""
    shared = [(len(wanted & theirs), batch) for theirs, batch in given]
    most = max((count for count, _ in shared), default=0)
    alike = [batch for count, batch in shared if count == most]
    return alike[0] if most and len(alike) == 1 else None


def _steps(recording: Recording, last: int) -> Iterator[tuple[int, Mapping[str, Any], Mapping[str, str]]]:
    """The documents of ``last`` and the steps before it, with the digest of each tensor by its place."""
    chunks = {recording.chunk_of(number) for number in range(max(1, last - LEAD_STEPS), last + 1)}
    for chunk in chunks - {None}:
        assert chunk is not None
        document = read_chunk(chunk)
        for one in document["steps"]:
            if last - LEAD_STEPS <= one["step"] <= last:
                yield one["step"], one, document["places"]


def _given(document: Mapping[str, Any], places: Mapping[str, str]) -> Iterator[Given]:
    for number, fetch in enumerate(document["fetches"]):
        if fetch.get("samples") is None:
            continue
        try:
            samples = Samples.from_json(fetch["samples"])
        except (KeyError, TypeError, ValueError) as error:
            raise UsageError(
                f"tape, step {document['step']}: the samples of a batch cannot be read ({error})"
            ) from None
        yield _digests(f"s{document['step']}f{number}", places), samples


def _digests(lead: str, places: Mapping[str, str]) -> frozenset[str]:
    return frozenset(digest for place, digest in places.items() if place.startswith(f"{lead}."))
