"""Records and guards updates that a script makes by hand, without ``watch.update()``.

Parameters that changed in place after a backward, without an optimizer's step, are an update by hand. The lines that
call backward between two updates are its pattern. After two updates with one pattern, a step begins at the end of its
last backward, where the script has not updated yet: there is the gate. The step ends when the parameters have changed:
at the next fetch, model call, clip, ``zero_grad`` or backward, or at the end of the run.

The stand-in of :mod:`steadytrain.capture.hooks.manual_updates` takes the place of the optimizer. Patterns differ
by their lines, so two models may be updated in turn. A script that breaks them too often gets one note about it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from steadytrain.capture.hooks.manual_updates import HandWritten, UpdateByHand
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.loss import Lines, lines_of
from steadytrain.capture.step.parameter_changes import Before, leaves, reaches
from steadytrain.capture.step.script_frames import user_frames

if TYPE_CHECKING:
    from steadytrain.capture.step.watcher import Watcher

SEEN_MIN = 2
"""Updates with one pattern after which it is guarded."""

LEARNED_MAX = 8
"""Updates by which a pattern must be known."""

BREAKS_MAX = 3
"""Updates, or backward passes without one, that fit no pattern and are passed over."""

BACKWARDS_MAX = 256
"""Backward passes of one update."""

PATTERNS_MAX = 8
SAMPLED_PARAMETERS = 8
UNUSED_MIN = 8
"""Backward passes without an update of any kind after which an optimizer that holds the weights counts as unused."""

WITHOUT_UPDATE_MAX = 200
"""Backward passes after which parameters that never changed are no longer compared."""

REPORTED = (
    "the weights changed after a backward{place}, and no torch.optim optimizer made this update: it is made by hand, "
    "by a functional optimizer or inside compiled code, so nothing is recorded or guarded; `with watch.update():` "
    "around the update does both"
)
LEFT_OUT = (
    "an update by hand{place} came after other backward passes than those before it: it was neither recorded nor "
    "guarded; `with watch.update():` around the update does both"
)
BROKEN = (
    "the updates by hand{place} no longer follow one pattern of backward passes: from here on they are neither "
    "recorded nor guarded; `with watch.update():` around the update does both"
)
FOLLOWED = (
    "the weights are updated by hand after {backwards}{place}: from update {first} on these updates are recorded and "
    "guarded. The step begins at the end of that backward, so gradient norms are those before clipping"
)


@dataclass
class Pattern:
    """An update by hand: who is updated, and how often it was seen. ``versioned``: each write had a version."""

    stand_in: UpdateByHand
    parameters: list[Tensor]
    versioned: bool
    seen: int = 1

    @property
    def ids(self) -> set[int]:
        return set(map(id, self.parameters))

    @property
    def known(self) -> bool:
        return self.seen >= SEEN_MIN

    def before(self) -> Before:
        """What a look compares with: the smallest parameters, if values have to be read."""
        return Before(self.parameters, [] if self.versioned else smallest(self.parameters))


class HandUpdates:
    """Serves one watcher."""

    def __init__(self, run: LiveRun, watcher: Watcher) -> None:
        self._run = run
        self._watcher = watcher
        self._lines: dict[Lines, int] = {}
        self._now: tuple[int, ...] = ()
        self._patterns: dict[tuple[int, ...], Pattern] = {}
        self._leaves: dict[int, Tensor] = {}
        self._before: Before | None = None
        self._ready: Pattern | None = None
        self._open: Pattern | None = None
        self._backwards = self._updates = self._breaks = 0
        self.told = False
        """Whether a note has said that updates are not recorded."""

        self.follows = False
        """Whether updates are guarded."""

        self.unused: str | None = None
        """The class of the newest optimizer, if its weights got gradients and none of them has ever changed."""

        self.is_off = False

    @property
    def leaves(self) -> list[Tensor]:
        """The parameters behind the backward passes since the last update."""
        return list(self._leaves.values())

    @property
    def changed(self) -> bool:
        """Whether parameters have changed since the last backward."""
        return self._before is not None and bool(self._before.changed())

    # -- what the script does --------------------------------------------------------------------------------------

    def backward_begins(self, roots: Sequence[Tensor], *, accumulates: bool) -> None:
        """A backward begins: look for an update, and note the lines and the parameters of this one."""
        self.look()
        if self._open is not None and accumulates:
            self._drop_step()
            self._broken()
        self._backwards += not self._patterns
        if self._backwards == UNUSED_MIN and not self._updates and self._is_held(set(self._leaves)):
            self.unused = type(self._optimizer()).__name__
        if self._backwards > WITHOUT_UPDATE_MAX or len(self._now) >= BACKWARDS_MAX:
            self.stop()
        if self.is_off:
            return
        if accumulates:
            lines = lines_of(user_frames())
            self._now += (self._lines.setdefault(lines, len(self._lines)),)
        self._ready, expected = None, self._expected()
        if expected is None or not reaches(roots, expected.ids):
            self._leaves |= {id(one): one for one in leaves(roots)}
        elif accumulates and self._patterns.get(self._now) is expected:
            self._ready = expected
        else:
            self._leaves |= {id(one): one for one in expected.parameters}

    def backward_ended(self) -> None:
        """A backward has ended. Begins the step, so it may raise :class:`RunStopped`."""
        ready, self._ready = self._ready, None
        if self.is_off:
            return
        if ready is not None:
            self._begin_step(ready)
        with self._run.own_time.unseen:
            self._before = ready.before() if ready is not None else self._before_any()

    def look(self) -> None:
        """The script does something that may follow an update."""
        if self._before is None:
            return
        with self._run.own_time.unseen:
            changed = self._before.changed()
        if not changed:
            return
        versioned, self._before = self._before.by_version, None
        if self._open is not None:
            self._end_step()
        else:
            self._learn(changed, versioned=versioned)
        self._now, self._leaves = (), {}

    def gradients_zeroed(self) -> None:
        """The script discards gradients: it has updated, or it makes no update with them."""
        self.look()
        if self._open is not None:
            self._drop_step()
        self._now = ()

    def state_loaded(self) -> None:
        """The script has loaded a state: what changed is no update."""
        if self._open is not None:
            self._end_step()
        self._before, self._now, self._leaves = None, (), {}

    def stop(self) -> None:
        """Follow nothing more, and hold nothing of the script's."""
        if self._open is not None:
            self._drop_step()
        self.is_off, self._ready, self._before = True, None, None
        self._patterns, self._leaves, self._lines = {}, {}, {}

    def close(self) -> None:
        """The script is over."""
        if self._run.stopped is None:
            self.look()
        self.stop()

    def _before_any(self) -> Before:
        """What a look compares with while the pattern is not known. With an optimizer it only shows a compiled step."""
        return Before(self.leaves, self.leaves if self._optimizer() is None else smallest(self.leaves))

    # -- patterns --------------------------------------------------------------------------------------------------

    def _expected(self) -> Pattern | None:
        """The known pattern that the backward passes so far are, or that they are the beginning of."""
        size = len(self._now)
        longer = [one for lines, one in self._patterns.items() if len(lines) > size and lines[:size] == self._now]
        found = longer or [one for lines, one in self._patterns.items() if lines == self._now]
        return found[0] if found and all(one.known for one in found) else None

    def _learn(self, changed: list[Tensor], *, versioned: bool) -> None:
        """An update was made that was not guarded."""
        self.unused = None
        run, ids, now = self._run, set(map(id, changed)), self._now
        self._updates += 1
        if not now or self._is_held(ids):
            self._report(REPORTED)
            return
        known = self._patterns.get(now)
        if known is None or known.ids != ids:
            shared = next((one.stand_in for one in self._patterns.values() if one.ids == ids), None)
            known = self._patterns[now] = Pattern(shared or UpdateByHand(changed), changed, versioned)
        else:
            known.seen, known.versioned = known.seen + 1, known.versioned and versioned
        known.stand_in.updates_before += 1
        run.observer.calls_forgotten()
        run.forget_step()
        unclear = any(len(one) > len(now) and one[: len(now)] == now for one in self._patterns) or any(
            len(one) < len(now) and now[: len(one)] == one for one in self._patterns
        )
        late = self._updates >= LEARNED_MAX and not any(one.known for one in self._patterns.values())
        if len(self._patterns) > PATTERNS_MAX or late or (unclear and not self.follows):
            self._report(REPORTED)
        elif unclear:
            self._broken()

    def _is_held(self, ids: set[int]) -> bool:
        """Whether the newest optimizer of the script holds one of these parameters: its step is compiled."""
        made = self._optimizer()
        return made is not None and any(id(one) in ids for group in made.param_groups for one in group["params"])

    def _optimizer(self) -> torch.optim.Optimizer | None:
        made = self._run.made()
        return None if isinstance(made, HandWritten) else made

    def _broken(self) -> None:
        self._breaks += 1
        if self._breaks > BREAKS_MAX:
            self._report(BROKEN)
        elif self._breaks == 1:
            self._run.note(LEFT_OUT.format(place=_place()))

    def _report(self, note: str) -> None:
        self.told = True
        self._run.note(note.format(place=_place()))
        self.stop()

    # -- a step ----------------------------------------------------------------------------------------------------

    def _begin_step(self, pattern: Pattern) -> None:
        stand_in = pattern.stand_in
        if not self.follows:
            self.follows = True
            count = len(self._now)
            backwards = "each backward" if count == 1 else f"every {count} backward passes"
            self._run.note(FOLLOWED.format(backwards=backwards, place=_place(), first=stand_in.updates_before + 1))
        stand_in.passed_over = stand_in.passed_over or self._updates
        self._open = pattern
        self._watcher.step_begins(stand_in, (stand_in,), {})

    def _end_step(self) -> None:
        pattern, self._open = self._open, None
        assert pattern is not None
        self._watcher.step_ends(pattern.stand_in, (pattern.stand_in,), {})

    def _drop_step(self) -> None:
        """No update followed the gate: the step is not recorded. In a replay it was a trial that left it out."""
        if self._run.observer.replays:
            self._end_step()
            return
        pattern, self._open = self._open, None
        assert pattern is not None
        run = self._run
        stream = run.leading.stream_of(pattern.stand_in)
        if stream is not None:
            stream.pending = None
            run.instruments(stream).skip_update()
        run.observer.calls_forgotten()
        run.forget_step()


def smallest(parameters: Sequence[Tensor]) -> list[Tensor]:
    """A few of the parameters, those with the fewest elements."""
    return sorted(parameters, key=Tensor.numel)[:SAMPLED_PARAMETERS]


def _place() -> str:
    code = next(iter(user_frames()), None)
    return f" in the loop of {code.code.co_filename}:{code.line}" if code is not None else ""
