"""Carries out the commands of ``steadytrain ctl`` between two steps, on the training thread."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import TYPE_CHECKING

from steadytrain.capture.snapshots.safetensors_writer import write_tensors
from steadytrain.capture.snapshots.snapshot_state import state_of
from steadytrain.capture.step.live_run import LiveRun
from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.core.incident import Action, ActionWord
from steadytrain.core.levels import find_level
from steadytrain.guard.commands import Command
from steadytrain.guard.control_socket import Asked, ControlServer
from steadytrain.guard.intervention import Numbers, kinds
from steadytrain.storage.bundle import write_json
from steadytrain.storage.tape_files import STATE_FILE, STATE_TENSORS, snapshot_name
from steadytrain.trial_runs.launched_script import CannotApplyError

if TYPE_CHECKING:
    from steadytrain.guard.guard_steering import GuardSteering

FOLDER = "by-hand"
OBSERVES = "the policy is observe, which never touches the run"
BY_HAND = "by hand (steadytrain ctl)"
WAIT_S = 0.2


class Hand:
    """Serves one run; ``steering`` holds the interventions."""

    def __init__(self, run: LiveRun, steering: GuardSteering) -> None:
        self._run = run
        self._steering = steering
        self._server: ControlServer | None = None
        self._tried = False
        self._paused = False
        self._captures: tuple[int, int] | None = None

    def between_steps(self, stream: Stream) -> None:
        """Carry out what waits; while the run is paused, wait for more."""
        if not self._tried and self._run.recorder.begun:
            self._tried = True
            with self._run.guard.part("listening for commands"):
                server = ControlServer()
                server.start(self._run.recorder.begin().path)
                self._server = server
        if self._captures is not None and stream is self._run.streams[0] and stream.step >= self._captures[1]:
            self._end_capture(stream)
        listening = self._server
        while listening is not None and (self._paused or not listening.waiting.empty()):
            try:
                asked = listening.waiting.get(timeout=WAIT_S if self._paused else 0.0)
            except queue.Empty:
                continue
            self._carry_out(stream, asked)

    def close(self) -> None:
        if self._server is not None:
            self._server.close()

    def forget(self) -> None:
        if self._server is not None:
            self._server.forget()

    def _carry_out(self, stream: Stream, asked: Asked) -> None:
        command = asked.command
        if command.touches and self._run.settings.policy == "observe":
            asked.answer(OBSERVES, done=False)
            return
        try:
            text = getattr(self, f"_{command.verb}")(stream, command)
        except CannotApplyError as error:
            asked.answer(str(error), done=False)
            return
        except Exception as error:
            asked.answer(f"failed: {type(error).__name__}: {error}", done=False)
            raise
        asked.answer(f"step {stream.step}: {text}")

    # -- the commands ----------------------------------------------------------------------------------------------

    def _apply(self, stream: Stream, command: Command) -> str:
        one = kinds()[command.name](**command.settings)
        before, after = self._steering.hold(stream, command.name, one)
        self._note(stream, "rolled-back" if command.name == "roll-back" else "applied", command.name, before, after)
        numbers = ", ".join(f"{name.replace('_', ' ')} {value:.4g}" for name, value in after.items())
        return f"{command.name} applied" + (f" ({numbers})" if numbers else "")

    def _revert(self, stream: Stream, command: Command) -> str:
        if not self._steering.let_go(stream, command.name):
            raise CannotApplyError(f"{command.name} does not hold")
        self._note(stream, "reverted", command.name)
        return f"{command.name} taken back"

    def _snapshot(self, stream: Stream, command: Command) -> str:
        place = self._write_snapshot(stream)
        self._note(stream, "kept-snapshot")
        return f"state kept in {place}"

    def _write_snapshot(self, stream: Stream) -> Path:
        run = self._run
        place = run.recorder.begin().path / FOLDER / snapshot_name(stream.step)
        place.mkdir(parents=True, exist_ok=True)
        document, tensors, _ = state_of(stream, list(run.scaling.scalers.values()))
        held = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        digests = write_tensors(place / STATE_TENSORS, held, go_on=lambda: True)
        size = (place / STATE_TENSORS).stat().st_size
        write_json(place / STATE_FILE, {**document, "digests": digests, "tensor_bytes": size})
        return place

    def _capture(self, stream: Stream, command: Command) -> str:
        self._captures = stream.step + 1, stream.step + command.steps
        for one in self._run.streams:
            self._run.instruments(one).measure_all(one.step + command.steps)
        return f"the next {command.steps} steps are measured whole and kept as an incident"

    def _end_capture(self, stream: Stream) -> None:
        assert self._captures is not None
        (first, last), self._captures = self._captures, None
        self._run.symptom_incidents.keep(stream, first, last)
        self._note(stream, "kept-steps", after={"first_step": first, "last_step": last})

    def _level(self, stream: Stream, command: Command) -> str:
        for one in self._run.streams:
            self._run.instruments(one).change_level(find_level(command.name))
        self._note(stream, "changed-level")
        return f"level {command.name}"

    def _pause(self, stream: Stream, command: Command) -> str:
        if self._paused:
            raise CannotApplyError("it is paused already")
        self._paused = True
        self._note(stream, "paused")
        self._run.tell(f"PAUSED after step {stream.step} by hand; steadytrain ctl {self._run.settings.run_name} resume")
        return "paused; `resume` lets it go on"

    def _resume(self, stream: Stream, command: Command) -> str:
        if not self._paused:
            raise CannotApplyError("it is not paused")
        self._paused = False
        self._note(stream, "resumed")
        return "goes on"

    def _stop(self, stream: Stream, command: Command) -> str:
        run, self._paused = self._run, False
        self._note(stream, "stopped")
        run.tell(f"STOPPED after step {stream.step} by hand")
        run.stopped = RunStopped(f"steadytrain stopped the run after step {stream.step}: by hand")
        return "the run ends before its next update, with status 70"

    def _status(self, stream: Stream, command: Command) -> str:
        window = stream.history.window()
        losses = window.applied("loss").values
        loss = f"loss {losses[-1]:.4g}" if len(losses) else "no loss seen"
        held = ", ".join(self._steering.holding) or "nothing"
        state = "paused" if self._paused else "running"
        return f"{state}, {loss}, policy {self._run.settings.policy}; holds: {held}"

    def _note(
        self,
        stream: Stream,
        what: ActionWord,
        name: str = "",
        before: Numbers | None = None,
        after: Numbers | None = None,
    ) -> None:
        policy = self._run.settings.policy
        action = Action(stream.step, policy, what, BY_HAND, name, dict(before or {}), dict(after or {}), by="hand")
        self._run.recorder.act(stream, action)
