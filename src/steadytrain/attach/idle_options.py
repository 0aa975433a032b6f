"""Options that nothing uses beside another one: refused where the user typed them. A settings file may hold them, as it
serves runs of several policies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from steadytrain.attach.options import Options
from steadytrain.core.errors import UsageError
from steadytrain.guard.policy import BASES

NEVER_SKIP = ("stop", "observe")
OF_ALERTS = ("notify_at", "notify_quiet", "notify_per_hour")
"""Whether these are used may be decided by the environment, which can hold the addresses."""


def refuse_idle(options: Options, given: Collection[str]) -> None:
    """Check that each option whose name is in ``given`` is used.

    Raises:
        UsageError: one is not; the text names the option that makes it so.
    """
    for name, why in _idle(options):
        if name in given:
            raise UsageError(f"--{name.replace('_', '-')}{why}")


def _idle(options: Options) -> Iterator[tuple[str, str]]:
    skips = f" {options.max_skips}: "
    if options.policy in NEVER_SKIP:
        yield "max_skips", f"{skips}--policy {options.policy} skips no update; use --policy skip, or leave it out"
    elif options.policy not in BASES:
        entry = f"skips-in-a-row = {options.max_skips}"
        yield "max_skips", f"{skips}{options.policy} says this itself; write {entry} into its [budget]"
    if not options.rewind_mb:
        yield "keep_rewind", ": --rewind-mb 0 makes no tape that could be kept; leave one of them out"
    if not options.notify and not options.on_incident:
        for name in OF_ALERTS:
            yield name, f" {getattr(options, name)}: nobody is alerted; add --notify URL or --on-incident COMMAND"
    elif not options.notify:
        yield "notify_quiet", f" {options.notify_quiet}: it holds for addresses alone; add --notify URL"
