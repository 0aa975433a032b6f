"""What a person chooses for a run: one frozen value, from the command line or the call of ``watch`` to the watcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Policy
from steadytrain.core.levels import LEVEL_DEFAULT, find_level
from steadytrain.exporters import TO_DEFAULT, check_to, parse_to
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

POLICIES: tuple[Policy, ...] = ("stop", "observe")
COMPILED = ("edges", "inside")


@dataclass(frozen=True)
class Options:
    """What a person chooses for a run.

    Args:
        policy: ``stop`` refuses an update whose loss or gradients are not finite, writes an incident and raises
            ``RunStopped``, which ends a script with status 70; ``observe`` only records.
        level: how much is recorded: ``light``, ``standard`` or ``full`` (``steadytrain.core.levels``).
        runs_dir: folder of run folders.
        name: name of the run, by default the script's with the time.
        state_mb: bound on model and optimizer state in a bundle, in 10^6 bytes.
        to: where the run goes besides its folder: ``tensorboard``, ``wandb``, ``mlflow``, in a sequence or in one text
            with commas; ``auto``, the default, joins a run of theirs that is active already; ``none`` sends nothing.
        compiled: where outputs of modules in compiled code are seen: at its ``edges``, the default, or ``inside``: the
            graphs of what is compiled from here on compute them too, in every step. No graph or break more; but where
            the compiler then fuses differently, the last bits of the training change (``docs/signals.md``).
        continues: the watched run that this one goes on from, from its last applied step or, as ``RUN@STEP``, from that
            of the checkpoint. Steps are counted on from there, and detectors judge by that run's last steps.
        rewind_mb: disk, in 10^6 bytes, for the tape and the snapshots that make the last steps replayable; 0: none.
        keep_rewind: they stay although the run ended well.

    Raises:
        UsageError: one of them is none of its kind.
    """

    policy: Policy = "stop"
    level: str = LEVEL_DEFAULT
    runs_dir: str | Path = RUNS_DIR_DEFAULT
    name: str | None = None
    state_mb: int = 4096
    to: Sequence[str] = TO_DEFAULT
    compiled: str = "edges"
    continues: str | None = None
    rewind_mb: int = 4096
    keep_rewind: bool = False

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"{self.policy!r}: no such policy; one of {', '.join(POLICIES)}")
        level = find_level(self.level)
        if self.compiled not in COMPILED:
            raise UsageError(f"{self.compiled!r}: not where compiled code is seen; one of {', '.join(COMPILED)}")
        if self.compiled == "inside" and level.modules_every is None:
            raise UsageError(f"compiled inside: the level {level.name} looks at no outputs; take standard or full")
        object.__setattr__(self, "to", parse_to(self.to) if isinstance(self.to, str) else check_to(self.to))
        name = self.name
        if name is not None and (not name or name != Path(name).name or name.startswith(".")):
            raise UsageError(f"{name!r}: a run's name is one plain folder name; --runs-dir says where it lies")
        if self.state_mb < 0:
            raise UsageError(f"{self.state_mb}: the bound on kept state must not be negative")
        if self.rewind_mb < 0:
            raise UsageError(f"{self.rewind_mb}: the bound on disk for rewinding must not be negative")

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "runs_dir": str(self.runs_dir)}

    def differing(self, other: Options, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """Of the options ``names`` those in which the two differ, with the value of each side."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        if "runs_dir" in pairs and Path(self.runs_dir).absolute() == Path(other.runs_dir).absolute():
            del pairs["runs_dir"]
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


class OptionsGiven(TypedDict, total=False):
    """The fields of :class:`Options` as keywords of :func:`steadytrain.watch`; those left out have their default."""

    policy: Policy
    level: str
    runs_dir: str | Path
    name: str | None
    state_mb: int
    to: Sequence[str]
    compiled: str
    continues: str | None
    rewind_mb: int
    keep_rewind: bool
