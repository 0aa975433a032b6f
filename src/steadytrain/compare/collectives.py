"""Compares what several ranks called: the first collective that they do not agree on, and the rank that differs.

A rank waits in a collective until all others have called it. So the rank that did not call it, or called another one,
is the one to look at, and not those that wait or whose watchdog ended the job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from steadytrain.core.json_values import JsonValue
from steadytrain.storage.flight_records import Call, FlightRecord, GroupRecord

Kind = Literal["missing", "differs", "unmatched", "unfinished"]
SCHEMA = "steadytrain.collectives/1"
SAME_SIZES = (
    *("all_reduce", "allreduce", "all_reduce_coalesced", "allreduce_coalesced", "broadcast", "reduce"),
    *("_all_gather_base", "_allgather_base", "_reduce_scatter_base", "all_gather_into_tensor", "reduce_scatter_tensor"),
)
"""Operations whose inputs have one number of elements on all ranks. Others may differ: a gather, an uneven exchange."""

OF_ALL = (
    *("all_reduce", "allreduce", "all_gather", "allgather", "reduce_scatter", "all_to_all", "alltoall", "barrier"),
    *("_all_gather_base", "_allgather_base", "_reduce_scatter_base", "all_gather_into_tensor", "reduce_scatter_tensor"),
    *("all_to_all_single", "all_reduce_coalesced", "allreduce_coalesced"),
)
"""Operations that end on no rank before all have called them. A root of a broadcast may be done early."""

RANKS_SHOWN_MAX = 16


@dataclass(frozen=True)
class Disagreement(JsonValue):
    """A call that the ranks of a group do not agree on, or that does not end.

    ``kind`` is ``missing`` (``ranks`` did not call it), ``differs`` (they called it with another operation, size or
    dtype), ``unmatched`` (a send without its receive, or the reverse) or ``unfinished`` (all called it; ``ranks`` have
    not begun it, () if all have). ``waiting`` are the ranks that are in it. ``seq`` counts the collectives of the
    group from 1, and is null for a send or a receive.
    """

    group: str
    kind: Kind
    operation: str
    seq: int | None
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    line: str
    line_of_ranks: str
    sentence: str


@dataclass(frozen=True)
class Comparison(JsonValue, schema=SCHEMA):
    """What the records say. ``ranks`` have one; ``absent`` are members of a group without one. The first of
    ``disagreements`` comes before those that follow from it."""

    ranks: tuple[int, ...]
    absent: tuple[int, ...]
    groups: tuple[str, ...]
    calls: int
    disagreements: tuple[Disagreement, ...]

    @property
    def agrees(self) -> bool:
        return not self.disagreements and not self.absent


@dataclass(frozen=True)
class _Found:
    disagreement: Disagreement
    since_ns: int
    members: int


def compare_records(records: Sequence[FlightRecord]) -> Comparison:
    """Compare the records of the ranks of one job."""
    found: list[_Found] = []
    names = list(dict.fromkeys(name for record in records for name in record.groups))
    absent: set[int] = set()
    by_rank = {record.rank: record for record in records}
    for name in names:
        of_ranks = {record.rank: record.groups[name] for record in records if name in record.groups}
        members = next((group.members for group in of_ranks.values() if group.members), ())
        unrecorded = [rank for rank in members if rank not in by_rank]
        absent.update(unrecorded)
        asked = {rank: group for rank, group in of_ranks.items() if not members or rank in members}
        for rank in members:
            if rank in by_rank and rank not in asked:
                asked[rank] = GroupRecord(next(iter(of_ranks.values())).name, members, (), 0)
        evicted = {rank for rank in asked if by_rank[rank].evicted}
        found += [*_of_collectives(asked, evicted, unrecorded), *_of_messages(asked, members, evicted)]
    stuck = {rank for one in found for rank in one.disagreement.waiting}
    # Where ranks wait for each other in a circle, the smaller group is more often the beginning.
    found.sort(key=lambda one: (_follows(one.disagreement, stuck), one.members, one.since_ns))
    return Comparison(
        ranks=tuple(record.rank for record in records),
        absent=tuple(sorted(absent)),
        groups=tuple(dict.fromkeys(_title(group) for record in records for group in record.groups.values())),
        calls=sum(len(group.calls) for record in records for group in record.groups.values()),
        disagreements=tuple(one.disagreement for one in found),
    )


def _follows(one: Disagreement, stuck: set[int]) -> bool:
    """Whether a rank that is missing waits somewhere else: then that is what to look at."""
    return one.kind == "missing" and any(rank in stuck for rank in one.ranks)


# -- collectives -----------------------------------------------------------------------------------------------------


def _of_collectives(
    groups: Mapping[int, GroupRecord], evicted: set[int], unrecorded: Sequence[int]
) -> Iterator[_Found]:
    """At most one: the first call that differs, else the last one that not all have made or ended."""
    calls = {rank: _by_seq(group) for rank, group in groups.items()}
    every = sorted({seq for of_rank in calls.values() for seq in of_rank})
    for seq in every:
        here = {rank: of_rank[seq] for rank, of_rank in calls.items() if seq in of_rank}
        odd = _odd_ones(here)
        if odd is not None and not all(call.is_complete for one in here.values() for call in one):
            yield _differs(groups, seq, here, *odd)
            return
    newest = {rank: max(group.enqueued, max(calls[rank], default=0)) for rank, group in groups.items()}
    last = max(newest.values(), default=0)
    known = [rank for rank in groups if calls[rank] or rank not in evicted]
    # A device runs behind its queue: ranks may have called further ones, and wait in the first that one did not call.
    first = min((newest[rank] + 1 for rank in known if newest[rank] < last), default=last)
    here = {rank: of_rank[first] for rank, of_rank in calls.items() if first in of_rank}
    waiting = {rank: one for rank, one in here.items() if not all(call.is_complete for call in one)}
    ended = [one for rank, one in here.items() if rank not in waiting]
    if not waiting or any(call.operation in OF_ALL for one in ended for call in one):
        return  # nobody waits; or it has ended on a rank, which it cannot before all have called it
    behind = [rank for rank in known if newest[rank] < first]
    if behind or unrecorded:
        yield _missing(groups, first, waiting, behind or list(unrecorded), calls)
    else:
        yield _unfinished(groups, first, waiting)


def _by_seq(group: GroupRecord) -> dict[int, list[Call]]:
    found: dict[int, list[Call]] = {}
    for call in group.calls:
        if call.seq and call.peer is None:
            found.setdefault(call.seq, []).append(call)
    return found


def _odd_ones(here: Mapping[int, Sequence[Call]]) -> tuple[str, list[int]] | None:
    """What differs between the ranks' calls of one number, and the ranks that are in the minority."""
    for what, key in (("operation", _operations), ("size", _lengths), ("dtype", _dtypes)):
        told = {rank: value for rank, calls in here.items() if (value := key(calls)) is not None}
        counts = Counter(told.values())
        if len(counts) > 1:
            usual = max(counts, key=lambda value: (counts[value], -min(r for r, one in told.items() if one == value)))
            return what, [rank for rank, value in told.items() if value != usual]
    return None


def _operations(calls: Sequence[Call]) -> tuple[str, ...] | None:
    return tuple(call.operation for call in calls)


def _lengths(calls: Sequence[Call]) -> tuple[int, ...] | None:
    if not all(call.operation in SAME_SIZES for call in calls):
        return None
    return tuple(math.prod(size) for call in calls for size in call.inputs)


def _dtypes(calls: Sequence[Call]) -> tuple[str, ...] | None:
    if not all(call.operation in SAME_SIZES for call in calls):
        return None
    return tuple(dtype for call in calls for dtype in call.dtypes)


def _differs(
    groups: Mapping[int, GroupRecord], seq: int, here: Mapping[int, Sequence[Call]], what: str, odd: list[int]
) -> _Found:
    usual = next(rank for rank in here if rank not in odd)
    mine, theirs = here[usual][0], here[odd[0]][0]
    rest = [rank for rank in here if rank not in odd]
    sentence = (
        f"{_ranks(odd)} called {_told(theirs, what)}{_at(theirs.line)} as call {seq} of {_title(groups[usual])}, where "
        f"{_ranks(rest)} called {_told(mine, what)}{_at(mine.line)}"
    )
    return _found("differs", groups[usual], odd, here, theirs.line, sentence)


def _missing(
    groups: Mapping[int, GroupRecord],
    seq: int,
    waiting: Mapping[int, Sequence[Call]],
    behind: list[int],
    calls: Mapping[int, Mapping[int, Sequence[Call]]],
) -> _Found:
    first = next(iter(waiting.values()))[0]
    group = groups[next(iter(waiting))]
    of_first = calls.get(behind[0], {})
    newest = of_first[max(of_first)] if of_first else ()
    its = newest[-1] if newest else None
    since = f"; its last was {its.operation}, call {its.seq}{_at(its.line)}" if its is not None else ""
    what = f"{first.operation}, call {seq} of {_title(group)}"
    wait = f"{_ranks(list(waiting))} wait{'s' if len(waiting) == 1 else ''} in"
    if behind[0] in groups:
        skipped = _skipped(calls, behind[0], list(waiting))
        sentence = f"{_ranks(behind)} did not call {what}, which {wait}{_at(first.line)}{since}{skipped}"
    else:
        sentence = f"there is no record of {_ranks(behind)}, and {wait} {what}{_at(first.line)}: did it die?"
    return _found("missing", group, behind, waiting, its.line if its else "", sentence)


def _skipped(calls: Mapping[int, Mapping[int, Sequence[Call]]], rank: int, others: Sequence[int]) -> str:
    """From which call on ``rank`` is at other lines than all others: it left one out there."""
    at: int | None = None
    for seq in sorted(calls[rank]):
        lines = {calls[other][seq][0].line for other in others if seq in calls[other]}
        same = lines == {calls[rank][seq][0].line}
        at = None if same or not lines else at or seq
    if at is None or len(others) < 1:
        return ""
    own, their = calls[rank][at][0].line, next(calls[other][at][0].line for other in others if at in calls[other])
    if not own or not their:
        return ""
    return f"; from call {at} on it is at another line ({own}, the others at {their}): it left one out there"


def _unfinished(groups: Mapping[int, GroupRecord], seq: int, here: Mapping[int, Sequence[Call]]) -> _Found:
    first = next(iter(here.values()))[0]
    group = groups[next(iter(here))]
    begun = [rank for rank, calls in here.items() if all(call.state == "started" for call in calls)]
    not_begun = [rank for rank in here if rank not in begun] if begun else []
    head = f"all ranks called {first.operation}, call {seq} of {_title(group)}{_at(first.line)}, and "
    if not_begun:
        sentence = f"{head}the device of {_ranks(not_begun)} has not begun it: it is busy with earlier work, or hangs"
    else:
        sentence = (
            f"{head}{_ranks(list(here))} {'has' if len(here) == 1 else 'have'} not ended it: the ranks agree, so look "
            "at the network or a device, or wait"
        )
    return _found("unfinished", group, not_begun, here, "", sentence)


# -- sends and receives ----------------------------------------------------------------------------------------------


def _of_messages(groups: Mapping[int, GroupRecord], members: Sequence[int], evicted: set[int]) -> Iterator[_Found]:
    """Open sends without an open or completed receive, and the reverse, the oldest of each pair of ranks."""
    order = list(members) or sorted(groups)
    sent: dict[tuple[int, int], list[Call]] = {}
    received: dict[tuple[int, int], list[Call]] = {}
    for rank, group in groups.items():
        for call in group.calls:
            if call.peer is None or not 0 <= call.peer < len(order):
                continue
            peer = order[call.peer]
            pair, into = ((rank, peer), sent) if call.operation == "send" else ((peer, rank), received)
            into.setdefault(pair, []).append(call)
    for pair in dict.fromkeys((*sent, *received)):
        source, target = pair
        sends, receives = sent.get(pair, []), received.get(pair, [])
        if {source, target} - set(groups):
            continue
        if evicted & {source, target} and sends and receives:
            sends, receives = _open(sends), _open(receives)
        if len(sends) == len(receives):
            continue
        more, other, verb = (sends, target, "receive") if len(sends) > len(receives) else (receives, source, "send")
        waits = source if other == target else target
        left = more[min(len(sends), len(receives)) :]
        if all(call.is_complete for call in left):
            continue
        first = left[0]
        whom = f"from rank {source}" if verb == "receive" else f"to rank {target}"
        sentence = (
            f"rank {other} did not {verb} {whom}: rank {waits} waits in {first.operation} "
            f"{'to' if verb == 'receive' else 'from'} rank {other}{_at(first.line)}"
        )
        found = Disagreement(
            _title(groups[waits]), "unmatched", first.operation, None, (other,), (waits,), first.line, "", sentence
        )
        yield _Found(found, first.created_ns, len(order))


def _open(calls: Sequence[Call]) -> list[Call]:
    return [call for call in calls if not call.is_complete]


# -- words -----------------------------------------------------------------------------------------------------------


def _found(
    kind: Kind, group: GroupRecord, ranks: Sequence[int], here: Mapping[int, Sequence[Call]], line: str, sentence: str
) -> _Found:
    """``here`` has the calls of the ranks that are in it; ``line`` is that of ``ranks``."""
    since = min((one.created_ns for calls in here.values() for one in calls), default=0)
    waiting = tuple(rank for rank in here if rank not in ranks)
    call = here[waiting[0]][0]
    told = Disagreement(_title(group), kind, call.operation, call.seq, tuple(ranks), waiting, call.line, line, sentence)
    return _Found(told, since, len(group.members) or len({*ranks, *here}))


def _title(group: GroupRecord) -> str:
    name = group.name.removesuffix("_pg") if group.name == "default_pg" else group.name
    return f"the {name} group" if name else "a group"


def _ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:RANKS_SHOWN_MAX]))
    more = f" and {len(ranks) - RANKS_SHOWN_MAX} more" if len(ranks) > RANKS_SHOWN_MAX else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {shown}{more}"


def _at(line: str) -> str:
    return f" at {line}" if line else ""


def _told(call: Call, what: str) -> str:
    """``call`` with what two ranks differ in: their operation, size or dtype."""
    sizes = ", ".join(f"[{', '.join(map(str, size))}]" for size in call.inputs) or "nothing"
    of = {"operation": "", "size": f" of {sizes}", "dtype": f" of {', '.join(call.dtypes)}"}[what]
    return f"{call.operation}{of}"
