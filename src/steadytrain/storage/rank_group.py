"""What all ranks of one run recorded, to launch them together again: a source, a recording and a launcher for each.

Only ranks that a launcher started on one machine, that each hold the whole model on the CPU, and that all have a tape
can be launched again. Anything else is refused in one line. Torch-free.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from steadytrain.core.errors import UsageError
from steadytrain.storage.bundle import is_bundle, open_bundle
from steadytrain.storage.ranks_of_run import FIRST_BAD_RANK, LAUNCHER, LAUNCHER_VARIABLES, rank_folder
from steadytrain.storage.run_folder import RANKS_FOLDER, open_run
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER
from steadytrain.storage.tape_files import Recording, Snapshot, find_recording, recording_note

RANKS_MAX = 16
"""Ranks that are launched together. Each is a process with the whole model on this machine."""

MAIN = "main"


@dataclass(frozen=True)
class RankGroup:
    """``rank`` is the one that was asked for; the tuples have an entry for each rank. ``sources`` are bundles of the
    same step, or run folders."""

    rank: int
    sources: tuple[Path, ...]
    recordings: tuple[Recording, ...]
    launchers: tuple[Mapping[str, str], ...]
    bad_rank: int | None = None
    """The rank at which the run's last step went wrong, if the run says so."""

    @property
    def world(self) -> int:
        return len(self.sources)

    @property
    def common(self) -> Recording:
        """The recording of the asked rank, with the snapshots from which every rank can start."""
        own = self.recordings[self.rank]
        starts = set(own.starts()).intersection(*(one.starts() for one in self.recordings))
        return replace(own, snapshots=tuple(shot for shot in own.snapshots if shot.step + 1 in starts))

    @property
    def last_step(self) -> int | None:
        """The last step that every rank has on its tape."""
        lasts = [one.last_step for one in self.recordings]
        return None if None in lasts else min(last for last in lasts if last is not None)

    def reaches(self, first: int) -> int:
        """The last step that every rank can replay from ``first`` on."""
        return min(one.reaches(first) for one in self.recordings)

    def choose(self, *, first: int | None, until: int | None, onset: int | None = None) -> tuple[Snapshot, int]:
        """Like :meth:`Recording.choose`, for all ranks.

        Raises:
            UsageError: there is no such snapshot, or the tape of a rank has a gap.
        """
        common = self.common
        if not common.snapshots:
            raise UsageError(
                f"{common.folder}: the ranks have no snapshot of the same step, so they cannot start together"
            )
        shot, last = common.choose(first=first, until=until or self.last_step, onset=onset)
        for rank, one in enumerate(self.recordings):
            if (reached := one.reaches(shot.step + 1)) < last:
                raise UsageError(
                    f"step {last}: from step {shot.step + 1} on, the tape of rank {rank} reaches only {reached}"
                )
        return shot, last

    def variables(self, rank: int, *, port: int) -> dict[str, str]:
        """The environment of ``rank`` when all ranks are launched on this machine, as the launcher would set it."""
        return {
            **self.launchers[rank],
            **_meeting(port),
            "ROLE_RANK": str(rank),
            "ROLE_WORLD_SIZE": str(self.world),
        }

    def variables_alone(self, rank: int, *, port: int) -> dict[str, str]:
        """The environment of ``rank`` in a world of one."""
        return {**self.launchers[rank], **_meeting(port), **WORLD_OF_ONE}


WORLD_OF_ONE = {
    **dict.fromkeys(("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK"), "0"),
    **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE", "ROLE_WORLD_SIZE"), "1"),
}


def alone(environment: Mapping[str, Any], *, port: int) -> dict[str, str]:
    """The variables for one process in a world of one, of a run whose ranks a launcher started; else none."""
    if world_of(environment) < 2 or not _told(environment):
        return {}
    return {**_launcher(environment, 0, 1), **_meeting(port), **WORLD_OF_ONE}


def _meeting(port: int) -> dict[str, str]:
    return {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GROUP_WORLD_SIZE": "1",
        "ROLE_NAME": "default",
    }


def rank_group(source: Path) -> RankGroup | None:
    """The ranks of the run that ``source``, a bundle or a run folder, belongs to; None for a run of one process.

    Raises:
        UsageError: there are several, and they cannot be launched together again; the text says why.
    """
    environment, step, stream = _recorded(source)
    world = world_of(environment)
    if world < 2:
        return None
    rank, run = environment.get("rank"), run_of_all(source)
    if not isinstance(rank, int) or not 0 <= rank < world:
        raise UsageError(f"{source}: it is of rank {rank!r} of {world}, which is none")
    _check(environment, source, world)
    folders = [rank_folder(run, number) for number in range(world)]
    sources, recordings, launchers = [], [], []
    for number, folder in enumerate(folders):
        found = source if number == rank else _source_of(folder, source, number, step, stream)
        recording = find_recording(found)
        if not recording.chunks:
            note = recording_note(found) if is_bundle(found) else None
            raise UsageError(
                f"{found}: rank {number} has no tape of its steps{f' ({note})' if note else ''}, and all ranks need one"
            )
        sources.append(found)
        recordings.append(recording)
        launchers.append(_launcher(_recorded(found)[0], number, world))
    bad = open_run(run).facts.get(FIRST_BAD_RANK) if step is not None else None
    bad_rank = bad if isinstance(bad, int) and 0 <= bad < world else None
    return RankGroup(rank, tuple(sources), tuple(recordings), tuple(launchers), bad_rank)


def world_of(environment: Mapping[str, Any]) -> int:
    """The number of ranks of a recorded run; 1 if unknown."""
    world = environment.get("world_size")
    return world if isinstance(world, int) and not isinstance(world, bool) else 1


def own_folder(source: Path) -> Path:
    """The folder of the run, or of the rank, that a bundle lies in; ``source`` itself where it is no bundle."""
    return source.absolute().parent.parent if is_bundle(source) else source.absolute()


def run_of_all(source: Path) -> Path:
    """The folder of the run whose rank a bundle or a run folder is of."""
    folder = own_folder(source)
    return folder.parent.parent if folder.parent.name == RANKS_FOLDER else folder


def _recorded(source: Path) -> tuple[Mapping[str, Any], int | None, str]:
    """The environment, and of a bundle the step and the optimizer that it is about."""
    if not is_bundle(source):
        return open_run(source).description, None, MAIN
    bundle = open_bundle(source)
    return bundle.environment, bundle.incident.step, bundle.incident.stream


def _check(environment: Mapping[str, Any], source: Path, world: int) -> None:
    """Checks that the ranks can be launched together on this machine, without their tapes."""
    told = _told(environment)
    if "RANK" not in told:
        raise UsageError(
            f"{source}: its {world} ranks were not started by a launcher such as torchrun (they had no RANK), so they "
            "cannot be launched again"
        )
    if told.get("LOCAL_WORLD_SIZE", str(world)) != str(world):
        raise UsageError(f"{source}: its {world} ranks ran on several machines; only ranks of one are launched again")
    if world > RANKS_MAX:
        raise UsageError(f"{source}: it had {world} ranks; at most {RANKS_MAX} are launched again on one machine")
    model = environment.get("model")
    devices = model.get("devices") if isinstance(model, Mapping) else None
    elsewhere = [str(one) for one in devices or () if not str(one).startswith("cpu")]
    if elsewhere:
        raise UsageError(
            f"{source}: its tensors were on {elsewhere[0]}; several ranks are launched again on the CPU only"
        )


def _told(environment: Mapping[str, Any]) -> Mapping[str, Any]:
    """The launcher's variables: a bundle has them among its variables, a run under a name of their own."""
    for name in (LAUNCHER, "environment"):
        found = environment.get(name)
        if isinstance(found, Mapping) and "RANK" in found:
            return found
    return {}


def _launcher(environment: Mapping[str, Any], rank: int, world: int) -> dict[str, str]:
    told = {name: str(value) for name, value in _told(environment).items() if name in LAUNCHER_VARIABLES}
    usual = {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world), "GROUP_RANK": "0"}
    return {**usual, **told, "RANK": str(rank), "WORLD_SIZE": str(world)}


def _source_of(folder: Path, asked: Path, rank: int, step: int | None, stream: str) -> Path:
    """The bundle or folder of another rank whose recording goes best with that of the ``asked`` one."""
    if not (folder / "run.json").is_file():
        raise UsageError(
            f"{folder}: nothing of rank {rank} is there, and all ranks are needed; name the run in its own folder"
        )
    starts = set(find_recording(asked).starts())
    candidates = list(_candidates(folder, asked, stream))
    for one in candidates:
        recording = find_recording(one)
        common = starts.intersection(recording.starts())
        if any(recording.reaches(start) >= (step or start) for start in common):
            return one
    return next((one for one in candidates if find_recording(one).chunks), candidates[0] if candidates else folder)


def _candidates(folder: Path, asked: Path, stream: str) -> Iterator[Path]:
    incidents = folder / INCIDENTS_FOLDER
    if is_bundle(asked) and is_bundle(incidents / asked.name):
        yield incidents / asked.name
    if stream == MAIN:  # a run folder is replayed by the steps of its first optimizer
        yield folder
        yield from (
            one for one in sorted(incidents.glob("*step-*"), reverse=True) if is_bundle(one) and one.name != asked.name
        )
