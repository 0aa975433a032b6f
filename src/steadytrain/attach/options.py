"""The options of a run: one frozen value, from the command line or ``watch`` to the watcher."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypedDict, TypeVar

from steadytrain.attach.messages import tell
from steadytrain.core.errors import UsageError
from steadytrain.core.incident import MAX_SKIPS_DEFAULT
from steadytrain.core.levels import LEVEL_DEFAULT, find_level
from steadytrain.core.model import Severity
from steadytrain.exporters import NONE, TO_DEFAULT, check_to, parse_to
from steadytrain.exporters.alerts.settings import PER_HOUR_DEFAULT, AlertSettings, check_command, check_urls
from steadytrain.guard.policy import BASES, STEADIED, Policy
from steadytrain.guard.policy_files import find_policy
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT

Value = TypeVar("Value")
COMPILED = ("edges", "inside")
NO_RUN = "none"
"""For ``continues``: a new run, also where SLURM has started the job again."""


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
        to: tools that also get the run: ``tensorboard``, ``wandb``, ``mlflow``, ``prometheus``, ``otel``, in a
            sequence or in one text with commas; ``auto``, the default, joins an already active run of any of them;
            ``none`` sends nothing.
        notify: addresses of chat, mail and web hooks that get alerts, as Apprise takes them (``docs/alerts.md``), in a
            sequence or in one text with spaces; :func:`steadytrain.watch` takes those of ``STEADYTRAIN_NOTIFY`` if it
            is not given.
        on_incident: a shell command that gets each alert as JSON on its standard input.
        notify_at: lowest severity of a symptom that is alerted: ``critical`` or ``warning``.
        notify_quiet: hours of the day in which only the end of the run is sent, such as ``22:00-07:00``.
        notify_per_hour: messages to one address within an hour; more are gathered into the next one.
        compiled: where to measure module outputs in compiled code: at its ``edges``, the default, or ``inside``: graphs
            compiled from here on compute them too, in every step. This adds no graph and no graph break, but if the
            compiler then fuses differently, the last bits of the training change (``docs/signals.md``).
        continues: the watched run that this one continues, from its last applied step or, as ``RUN@STEP``, from that of
            the checkpoint. Steps count on from there, and detectors use that run's last steps as their baseline. By
            default, a SLURM job that was started again continues its own run; ``none``: it does not.
        rewind_mb: disk space, in 10^6 bytes, for the tape and the snapshots that allow a replay of the last steps; 0:
            none.
        checkpoints_mb: disk space, in 10^6 bytes, for good checkpoints that the script has removed; 0: none.
        keep_rewind: keep them also when the run ends well.
        every_step: record every step also in a long run of steps of some milliseconds. Otherwise such a run is recorded
            in bursts once steadytrain has worked for 6 s, so that it takes less than 10 % of the time.
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
    notify: Sequence[str] = field(default=(), repr=False)
    on_incident: str = field(default="", repr=False)
    notify_at: Severity = "critical"
    notify_quiet: str = ""
    notify_per_hour: int = PER_HOUR_DEFAULT
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
        if self.resume_from is not None and self.continues not in (None, NO_RUN):
            raise UsageError("--resume-from and --continues: give one; the incident names its run and step itself")
        if self.resume_from is not None and self.policy == "observe":
            raise UsageError("--resume-from loads a state; it contradicts --policy observe, which touches nothing")
        if self.policy not in BASES:
            object.__setattr__(self, "policy", str(Path(self.policy).absolute()))
        level = _of_option("--level", lambda: find_level(self.level))
        if self.compiled not in COMPILED:
            raise UsageError(
                f"--compiled {self.compiled!r}: no such place in compiled code; one of {', '.join(COMPILED)}"
            )
        if self.compiled == "inside" and level.modules_every is None:
            raise UsageError(f"compiled inside: the level {level.name} measures no outputs; use standard or full")
        try:
            to = _of_option("--to", lambda: parse_to(self.to) if isinstance(self.to, str) else check_to(self.to))
        except UsageError:
            raise
        except Exception as error:  # a broken plug-in costs the tools, not the run
            tell(
                f"warning: the tools of --to could not be checked ({type(error).__name__}: {error}); none gets the run"
            )
            to = (NONE,)
        object.__setattr__(self, "to", to)
        try:
            object.__setattr__(self, "notify", check_urls(self.notify))
            object.__setattr__(self, "on_incident", check_command(self.on_incident))
            self.alerts()
        except UsageError:
            raise
        except Exception as error:  # costs the alerts, not the run
            tell(f"warning: the options of alerts could not be checked ({type(error).__name__}: {error}); none is sent")
            object.__setattr__(self, "notify", ())
            object.__setattr__(self, "on_incident", "")
        name = self.name
        if name is not None and _is_refused(name):
            raise UsageError(f"{name!r}: a run's name is one plain folder name; set its place with --runs-dir")
        if self.state_mb < 0:
            raise UsageError(f"--state-mb {self.state_mb}: must not be negative; 0 stores no state")
        if self.max_skips < 1:
            raise UsageError(f"--max-skips {self.max_skips}: must be at least 1; to skip nothing, use --policy stop")
        if self.checkpoints_mb < 0:
            raise UsageError(f"--checkpoints-mb {self.checkpoints_mb}: must not be negative; 0 keeps no checkpoint")
        if self.rewind_mb < 0:
            raise UsageError(f"--rewind-mb {self.rewind_mb}: must not be negative; 0 keeps nothing to replay")

    def steering_policy(self) -> Policy:
        """The policy, read from its file if it is one.

        Raises:
            UsageError: there is no such policy, or its file is not valid.
        """
        return find_policy(str(self.policy), max_skips=max(1, self.max_skips))

    def alerts(self) -> AlertSettings:
        """What is alerted, with the responses of the policy.

        Raises:
            UsageError: one of its options is not valid.
        """
        policy = self.steering_policy()
        return AlertSettings(
            urls=tuple(self.notify),
            command=self.on_incident,
            at=self.notify_at,
            quiet=self.notify_quiet,
            per_hour=self.notify_per_hour,
            responses={name: policy.response(name) for name in (*STEADIED, *policy.symptoms)},
            response=policy.default,
        )

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "runs_dir": str(self.runs_dir)}

    def differing(self, other: Options, names: Sequence[str]) -> dict[str, tuple[Any, Any]]:
        """The options among ``names`` that differ, with both values."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in names}
        if "runs_dir" in pairs and Path(self.runs_dir).absolute() == Path(other.runs_dir).absolute():
            del pairs["runs_dir"]
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def _of_option(option: str, read: Callable[[], Value]) -> Value:
    """What ``read`` returns; an error of it names the option.

    Raises:
        UsageError: ``read`` does.
    """
    try:
        return read()
    except UsageError as error:
        raise UsageError(f"{option} {error}") from None


class OptionsGiven(TypedDict, total=False):
    """The fields of :class:`Options` as keywords of :func:`steadytrain.watch`; omitted ones have their default."""

    policy: str
    max_skips: int
    level: str
    runs_dir: str | Path
    name: str | None
    state_mb: int
    to: Sequence[str]
    notify: Sequence[str]
    on_incident: str
    notify_at: Severity
    notify_quiet: str
    notify_per_hour: int
    compiled: str
    continues: str | None
    rewind_mb: int
    keep_rewind: bool
    checkpoints_mb: int
    every_step: bool
    resume_from: str | None
    fixes: Sequence[str]


def _is_refused(name: str) -> bool:
    """Whether a run cannot be called so: a path, a hidden folder, or a name with a line end or another control
    character, which a terminal or the log of a job would obey."""
    return not name or name != Path(name).name or name.startswith(".") or not name.isprintable()
