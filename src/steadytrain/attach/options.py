"""The options of a run: one frozen value, from the command line or ``watch`` to the watcher."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypedDict

from steadytrain.attach.messages import tell
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import MAX_SKIPS_DEFAULT
from steadytrain.core.levels import LEVEL_DEFAULT, find_level
from steadytrain.exporters import NONE, TO_DEFAULT, check_to, parse_to
from steadytrain.guard.policy import BASES, Policy
from steadytrain.guard.policy_files import find_policy
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

COMPILED = ("edges", "inside")


@dataclass(frozen=True)
class Options:
    """The options of a run.

    Args:
        policy: ``stop`` refuses an update whose loss or gradients are not finite, writes an incident and raises
            ``RunStopped``, which ends a script with status 70; ``skip`` skips such an update, with state and buffers as
            before the step, writes an incident and goes on; ``steady`` also intervenes: it rolls back, clips, and
            lowers the learning rate; ``observe`` only records. Or the path of a TOML file (``docs/guard.md``).
        max_skips: the policy ``skip`` skips at most so many updates in a row; then it stops the run like ``stop``.
        level: how much to record: ``light``, ``standard`` or ``full`` (``steadytrain.core.levels``).
        runs_dir: folder of run folders.
        name: name of the run, by default the script's with the time.
        state_mb: bound on model and optimizer state in a bundle, in 10^6 bytes.
        to: tools that also get the run: ``tensorboard``, ``wandb``, ``mlflow``, in a sequence or in one text with
            commas; ``auto``, the default, joins an already active run of any of them; ``none`` sends nothing.
        compiled: where to measure module outputs in compiled code: at its ``edges``, the default, or ``inside``: graphs
            compiled from here on compute them too, in every step. This adds no graph and no graph break, but if the
            compiler then fuses differently, the last bits of the training change (``docs/signals.md``).
        continues: the watched run that this one continues, from its last applied step or, as ``RUN@STEP``, from that of
            the checkpoint. Steps count on from there, and detectors use that run's last steps as their baseline.
        rewind_mb: disk space, in 10^6 bytes, for the tape and the snapshots that allow a replay of the last steps; 0:
            none.
        checkpoints_mb: disk space, in 10^6 bytes, for good checkpoints that the script has removed; 0: none.
        keep_rewind: keep them also when the run ends well.
        every_step: record every step also in a long run of steps of some milliseconds. Otherwise such a run is recorded
            in bursts once steadytrain has worked for 20 s, so that it takes less than 10 % of the time.
        resume_from: the bundle of an incident. The state from before it is loaded at the first model call, and its run
            goes on from there.
        fixes: with ``resume_from``: interventions that hold from the first step, such as ``clip=0.5``, or the names of
            fixes as ``verify --with`` takes them. They are taken back after the policy's cool-down.

    Raises:
        UsageError: an option is of the wrong kind.
    """

    policy: str = "stop"
    max_skips: int = MAX_SKIPS_DEFAULT
    level: str = LEVEL_DEFAULT
    runs_dir: str | Path = RUNS_DIR_DEFAULT
    name: str | None = None
    state_mb: int = 4096
    to: Sequence[str] = TO_DEFAULT
    compiled: str = "edges"
    continues: str | None = None
    rewind_mb: int = 4096
    keep_rewind: bool = False
    checkpoints_mb: int = 4096
    every_step: bool = False
    resume_from: str | None = None
    fixes: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.steering_policy()
        object.__setattr__(self, "fixes", tuple(self.fixes))
        if self.fixes and self.resume_from is None:
            raise UsageError(f"--with {self.fixes[0]}: it needs --resume-from INCIDENT")
        if self.resume_from is not None and self.continues is not None:
            raise UsageError("--resume-from and --continues: give one; the incident names its run and step itself")
        if self.resume_from is not None and self.policy == "observe":
            raise UsageError("--resume-from loads a state; it contradicts --policy observe, which touches nothing")
        if self.policy not in BASES:
            object.__setattr__(self, "policy", str(Path(self.policy).absolute()))
        level = find_level(self.level)
        if self.compiled not in COMPILED:
            raise UsageError(f"{self.compiled!r}: no such place in compiled code; one of {', '.join(COMPILED)}")
        if self.compiled == "inside" and level.modules_every is None:
            raise UsageError(f"compiled inside: the level {level.name} measures no outputs; use standard or full")
        try:
            to = parse_to(self.to) if isinstance(self.to, str) else check_to(self.to)
        except UsageError:
            raise
        except Exception as error:  # a broken plug-in costs the tools, not the run
            tell(
                f"warning: the tools of --to could not be checked ({type(error).__name__}: {error}); none gets the run"
            )
            to = (NONE,)
        object.__setattr__(self, "to", to)
        name = self.name
        if name is not None and (not name or name != Path(name).name or name.startswith(".")):
            raise UsageError(f"{name!r}: a run's name is one plain folder name; set its place with --runs-dir")
        if self.state_mb < 0:
            raise UsageError(f"{self.state_mb}: the limit on stored state must not be negative")
        if self.max_skips < 1:
            raise UsageError(f"{self.max_skips}: --max-skips is at least 1; to skip nothing, use --policy stop")
        if self.checkpoints_mb < 0:
            raise UsageError(f"{self.checkpoints_mb}: the disk space for good checkpoints must not be negative")
        if self.rewind_mb < 0:
            raise UsageError(f"{self.rewind_mb}: the disk space for rewinding must not be negative")

    def steering_policy(self) -> Policy:
        """The policy, read from its file if it is one.

        Raises:
            UsageError: there is no such policy, or its file is not valid.
        """
        return find_policy(str(self.policy), max_skips=max(1, self.max_skips))

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "runs_dir": str(self.runs_dir)}

    def differing(self, other: Options, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """The options among ``names`` that differ, with both values."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        if "runs_dir" in pairs and Path(self.runs_dir).absolute() == Path(other.runs_dir).absolute():
            del pairs["runs_dir"]
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


class OptionsGiven(TypedDict, total=False):
    """The fields of :class:`Options` as keywords of :func:`steadytrain.watch`; omitted ones have their default."""

    policy: str
    max_skips: int
    level: str
    runs_dir: str | Path
    name: str | None
    state_mb: int
    to: Sequence[str]
    compiled: str
    continues: str | None
    rewind_mb: int
    keep_rewind: bool
    checkpoints_mb: int
    every_step: bool
    resume_from: str | None
    fixes: Sequence[str]
