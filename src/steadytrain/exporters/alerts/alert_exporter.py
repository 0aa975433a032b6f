"""The exporter that alerts, in its own process: it feeds the book, and hands what is due to the channels."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import final

from steadytrain.core.errors import UsageError
from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Symptom, Window
from steadytrain.core.own_command import own_command
from steadytrain.core.own_errors import own
from steadytrain.exporters.alerts.alert import GOOD_END, Alert, Place
from steadytrain.exporters.alerts.alert_book import NO_STEPS, AlertBook
from steadytrain.exporters.alerts.channels import Channel, Limits
from steadytrain.exporters.alerts.command_call import CommandCall
from steadytrain.exporters.alerts.settings import AlertSettings, quiet_hours
from steadytrain.exporters.exporter import Exporter, Histogram, Row, Run
from steadytrain.storage.redaction import redact_text
from steadytrain.storage.run_folder import RUN_FILE, open_run
from steadytrain.storage.stopped_recording import stopped_sentence

TICK_S = 0.5
CLOSE_WAIT_S = 50.0
"""Less than what a child may take after the script (``exporter_process.FINISH_S_MAX``)."""

JOB_VARIABLES = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


@final
class AlertExporter(Exporter):
    """Args:
    settings: what is alerted, and where.
    tell: prints one line for the user of the run.
    environment: that of the script, for its command.
    """

    def __init__(self, settings: AlertSettings, tell: Callable[[str], None], environment: dict[str, str]) -> None:
        self._settings = settings
        self._tell = tell
        self._environment = environment
        self._lock = threading.Lock()
        self._services: list[Channel] = []
        self._command: Channel | None = None
        self._why = ""
        self._over = threading.Event()

    def open(self, run: Run) -> None:
        host, job = os.uname().nodename, next((os.environ[one] for one in JOB_VARIABLES if os.environ.get(one)), "")
        place = Place(redact_text(run.name), redact_text(run.folder), redact_text(host), redact_text(job))
        recorded = Path(run.folder, RUN_FILE).exists()
        folder = Path(run.folder)
        self._folder = folder if recorded else None
        look = f"{own_command()} show" if recorded else ""
        self._book = AlertBook(self._settings, place, look, _date, functools.partial(recorded_steps, folder))
        settings = self._settings
        if settings.urls:
            from steadytrain.exporters.alerts.services import Service

            quiet = quiet_hours(settings.quiet) if settings.quiet else None
            for url in settings.urls:
                service = Service(url)
                limits = Limits(settings.per_hour, quiet)
                self._services.append(Channel(service.name, service.send, limits, self._tell, _log))
        if settings.command:
            call = CommandCall(settings.command, self._environment)
            self._command = Channel(call.name, call.send, Limits(settings.per_hour), self._tell, _log)
        threading.Thread(target=self._tick, daemon=True).start()

    def scalars(self, row: Row) -> None:
        with self._lock:
            self._book.reached(row.step)

    def histogram(self, histogram: Histogram) -> None:
        """Nothing: alerts show no distribution."""

    def symptom(self, symptom: Symptom) -> None:
        with self._lock:
            self._book.symptom(symptom, time.monotonic())

    def incident(self, path: Path, incident: Incident) -> None:
        with self._lock:
            self._book.incident(path, incident, time.monotonic())

    def action(self, action: Action) -> None:
        with self._lock:
            self._book.action(action, time.monotonic())

    def flush(self) -> None:
        """Nothing: alerts that are due are sent by the clock."""

    def failed(self, why: str) -> None:
        self._why = why

    def close(self, ended: str) -> None:
        self._over.set()
        if ended == "lost" and self._folder is not None:
            step, self._why = last_recorded(self._folder)
            self._book.reached(step)
        with self._lock:
            untold = self._book.intervened
            end = self._book.end(ended, self._why, self._note())
        for service in self._services:
            service.put(end)
        if self._command is not None and (ended != GOOD_END or end.symptoms or untold):
            self._command.put(end)
        deadline = time.monotonic() + CLOSE_WAIT_S
        for channel in self._channels:
            channel.ask_to_close()
        for channel in self._channels:
            if not channel.wait_closed(deadline - time.monotonic()):
                _log(f"{channel.name}: no answer at the end of the run")

    def _note(self) -> str:
        """What is wrong with the record of a run that made steps."""
        if self._folder is not None:
            return " ".join(stopped_sentence(self._folder))
        return "" if self._book.step is None else "Nothing was recorded: the run folder could not be written."

    @property
    def _channels(self) -> list[Channel]:
        return [*self._services, *([self._command] if self._command is not None else [])]

    def _tick(self) -> None:
        try:
            while not self._over.wait(TICK_S):
                self._send_due()
        except Exception as error:
            self._tell(f"warning: no alerts until the end of the run: {type(error).__name__}: {error}")
            raise

    def _send_due(self) -> None:
        with self._lock:  # `close` comes either before this or after it
            due: list[Alert] = [] if self._over.is_set() else self._book.due(time.monotonic())
            for alert in due:
                for channel in self._channels:
                    channel.put(alert)


def recorded_steps(folder: Path, stream: str) -> Window:
    """The recorded steps of a run; none where they cannot be read."""
    try:
        return open_run(folder).scalars(stream)
    except own(UsageError, OSError):
        return NO_STEPS


def last_recorded(folder: Path) -> tuple[int, str]:
    """The last step of a run whose process is gone, and by which signal it was ended ("" if none is on record)."""
    from steadytrain.report.slurm import ending

    try:
        run = open_run(folder)
        steps = [int(window.steps[-1]) for name in run.streams() if len(window := run.scalars(name))]
        return max(steps, default=0), ending(run) or ""
    except own(UsageError, OSError):
        return 0, ""


def _date() -> str:
    return datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")


def _log(line: str) -> None:
    """To the log of the exporter's process (``exporter_process``)."""
    sys.stderr.write(f"{_date()} {redact_text(line)}\n")
    sys.stderr.flush()
