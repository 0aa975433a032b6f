"""The sink that sends a run to other tools: to every named one, and into an active run that the script started.

Our own run is written in its own process (``exporter_process.py``): these libraries take seconds to import, hook into
the interpreter, and return an active run to whoever asks next. The script's own run is written from here, on a thread,
because its library is already loaded. If a named tool has an active run at the first step, that run is joined. With
``auto``, a run that the script starts later is joined, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, final

from steadytrain.core.incident import Action, Incident
from steadytrain.core.model import Reading, Symptom
from steadytrain.exporters import AUTO, NONE, early_alert, sent_values
from steadytrain.exporters.active_runs import active_runs
from steadytrain.exporters.alerts.settings import AlertSettings
from steadytrain.exporters.exporter import ActiveRun, Exporter, Row, Run, known_tools, load_tool
from steadytrain.exporters.exporter_process import ALERTS, ChildExporter
from steadytrain.exporters.exporter_queue import Outlet, Send, Tell
from steadytrain.exporters.sent_values import Allowance, Cadence
from steadytrain.storage.documents import redact_value
from steadytrain.storage.redaction import redact_text, redact_tree
from steadytrain.storage.segments import StepRecord

LOOK_EVERY_STEPS = 20
ALERTS_HEAR_EVERY_S = 10.0
"""How often the process of alerts gets the number of the last step."""

CLOSE_WAIT_S_MAX = 5.0
GROWN_SENT_MAX = 32
"""Symptoms whose last form alerts get at the end: an alert named their begin, and the end says how far they went."""

JOINED_MAX = 32
"""Most runs of the script that are joined one after the other: a loop over seeds has one for each."""


@final
class Exports:
    """The destinations of a run besides its folder. Every method is cheap and returns at once, ``close`` within a time
    limit.

    Args:
        to: names of exporters, and ``auto`` or ``none``, checked by :func:`steadytrain.exporters.check_to`.
        tell: prints one line for the user; called from other threads, too.
        alerts: which alerts go where; None for none.
    """

    def __init__(self, to: Sequence[str], *, tell: Tell, alerts: AlertSettings | None = None) -> None:
        self._named = [name for name in to if name not in (AUTO, NONE)]
        self._joins = AUTO in to
        self._tell = tell
        self._alerts = alerts if alerts is not None and alerts.wanted else None
        self._run: Run | None = None
        self._feeds: dict[str, _Feed | _AlertFeed] = {}
        self._ending: list[Outlet] = []
        self._joined: list[tuple[str, str]] = []
        self._severities: dict[tuple[str, str, int], str] = {}
        self._grown: dict[tuple[str, str, int], Symptom] = {}

    def open(self, folder: Path, run: Mapping[str, Any]) -> None:
        """Start the requested exporters. Only the first of several ranks sends anything."""
        if self._run is not None or run.get("rank"):
            return
        early_alert.dismiss()
        self._run = Run(str(run.get("name") or folder.name), str(folder), redact_tree(dict(run)))
        active = {found.tool: found for found in active_runs()} if self._named else {}
        for tool in self._named:
            if tool in active:
                self._join(active[tool], named=True)
            else:
                make = partial(ChildExporter, tool, self._tell)
                self._feeds[tool] = _Feed(tool, Outlet(tool, make, self._run, self._tell))
        if self._alerts is not None:
            make = partial(ChildExporter, ALERTS, self._tell, self._alerts.to_json())
            self._feeds[ALERTS] = _AlertFeed(Outlet(ALERTS, make, self._run, self._tell))
        self._look()

    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        """Send the signals of a step, and occasionally its gradient norms."""
        if record.step % LOOK_EVERY_STEPS == 0:
            self._look()
        for feed in self._feeds.values():
            feed.step(stream, record, tensor_names)

    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None:
        """Send a table that was measured at ``step``."""
        for feed in self._feeds.values():
            feed.reading(stream, step, time, reading)

    def symptom(self, symptom: Symptom) -> None:
        """Mark a symptom once, and again when its severity rises."""
        key = (symptom.name, symptom.stream, symptom.first_step)
        if self._severities.get(key) != symptom.severity:
            self._severities[key] = symptom.severity
            self._grown.pop(key, None)
            self._mark(lambda exporter: exporter.symptom(redact_value(symptom)))
        else:
            self._grown[key] = symptom

    def incident(self, path: Path, incident: Incident) -> None:
        """Send a sealed bundle."""
        self._mark(lambda exporter: exporter.incident(path, redact_value(incident)))

    def action(self, stream: str, action: Action) -> None:
        """Send an entry of the ledger."""
        self._mark(lambda exporter: exporter.action(redact_value(action)))

    def close(self, ended: str, why: str = "", step: int = 0) -> None:
        """Write out everything, and wait at most ``CLOSE_WAIT_S_MAX`` seconds in total."""
        alerts = self._feeds.get(ALERTS)
        if step and isinstance(alerts, _AlertFeed):
            alerts.reached(step)
        if alerts is not None:
            for symptom in list(self._grown.values())[-GROWN_SENT_MAX:]:
                alerts.mark(partial(_send_symptom, redact_value(symptom)))
        if why:
            self._mark(lambda exporter: exporter.failed(redact_text(why)))
        deadline = time.monotonic() + CLOSE_WAIT_S_MAX
        for tool in list(self._feeds):
            self._end(tool, ended)
        for outlet in self._ending:
            outlet.wait_closed(deadline - time.monotonic())
        self._ending.clear()
        self._run = None

    def forget(self) -> None:
        """In a forked child."""
        early_alert.forget()
        for outlet in [*self._ending, *(feed.outlet for feed in self._feeds.values())]:
            outlet.forget()
        self._feeds.clear()
        self._ending.clear()
        self._run = None

    def _mark(self, send: Send) -> None:
        for feed in self._feeds.values():
            feed.mark(send)

    def _look(self) -> None:
        """Join a run that the script started since, leave one that it ended, and drop failed outlets."""
        for tool, feed in list(self._feeds.items()):
            if not feed.outlet.alive:
                self._end(tool, "failed")
        if not self._joins or self._run is None:
            return
        active = {found.tool: found for found in active_runs()}
        for tool, feed in list(self._feeds.items()):
            if feed.identity and (tool not in active or active[tool].identity != feed.identity):
                self._end(tool, "finished")
        for found in active.values():
            known = (found.tool, found.identity) in self._joined
            if found.tool not in self._feeds and not known and len(self._joined) < JOINED_MAX:
                self._join(found, named=False)

    def _join(self, found: ActiveRun, *, named: bool) -> None:
        assert self._run is not None
        self._joined.append((found.tool, found.identity))
        self._tell(f"note: also in the active {found.tool} run {found.identity}, as steadytrain/* (off: --to none)")
        run = Run(self._run.name, self._run.folder, self._run.facts, named=named)
        outlet = Outlet(f"the active {found.tool} run", partial(_joining, found), run, self._tell)
        self._feeds[found.tool] = _Feed(found.tool, outlet, found.identity)

    def _end(self, tool: str, ended: str) -> None:
        feed = self._feeds.pop(tool)
        feed.send_held()
        feed.outlet.ask_to_close(ended)
        self._ending.append(feed.outlet)


class _AlertFeed:
    """The outlet of alerts: no table, and of the steps the last one."""

    identity = ""

    def __init__(self, outlet: Outlet) -> None:
        self.outlet = outlet
        self._held: tuple[str, StepRecord] | None = None
        self._next_s = -math.inf

    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        self._held = stream, record
        if record.time >= self._next_s:  # if the process is killed, this is known of it
            self._next_s = record.time + ALERTS_HEAR_EVERY_S
            self.send_held()

    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None: ...

    def mark(self, send: Send) -> None:
        self.send_held()
        self.outlet.put_marker(send)

    def reached(self, step: int) -> None:
        """The last step, which may not have been recorded."""
        self.send_held()
        self.outlet.put_marker(lambda exporter: exporter.scalars(Row(step, 0.0, {})))

    def send_held(self) -> None:
        """Send the number of the last step, before what refers to it."""
        if self._held is not None:
            (stream, record), self._held = self._held, None
            self.outlet.put_marker(lambda exporter: exporter.scalars(sent_values.signals(stream, record)))


class _Feed:
    """One outlet and its cadences. ``identity`` is that of the script's run, if one was joined."""

    def __init__(self, tool: str, outlet: Outlet, identity: str = "") -> None:
        self.outlet = outlet
        self.identity = identity
        self._every_steps = known_tools()[tool].signals_every_steps
        self._allowance = Allowance(sent_values.ROWS_PER_S_MAX, sent_values.ROWS_AT_ONCE_MAX)
        self._cadences: dict[tuple[str, str], Cadence] = {}
        self._held: dict[str, StepRecord] = {}

    def step(self, stream: str, record: StepRecord, tensor_names: tuple[str, ...]) -> None:
        if self._due(stream, "", record.step, self._every_steps) and self._allowance.takes(record.time):
            self._held.pop(stream, None)
            self._put_signals(stream, record)
        else:
            self._held[stream] = record
        if tensor_names and self._due(stream, sent_values.GRADIENTS, record.step, sent_values.TABLES_EVERY_STEPS):
            self._put_table(stream, record.step, record.time, sent_values.gradient_reading(record, tensor_names))

    def reading(self, stream: str, step: int, time: float, reading: Reading) -> None:
        if reading.table == sent_values.HISTOGRAMS:
            if self._due(stream, reading.table, step, sent_values.HISTOGRAMS_EVERY_STEPS):
                self.outlet.put(lambda exporter: _send_histograms(exporter, stream, step, time, reading))
            return
        every_steps = (
            1 if reading.table == sent_values.MACHINE else sent_values.TABLES_EVERY_STEPS
        )  # machine readings already follow the clock
        if self._due(stream, reading.table, step, every_steps):
            self._put_table(stream, step, time, reading)

    def mark(self, send: Send) -> None:
        """Send a marker after the last step, because the marker refers to it."""
        self.send_held()
        self.outlet.put_marker(send)

    def send_held(self) -> None:
        """Send the last step of each stream even if it was not due."""
        for stream, record in self._held.items():
            self._put_signals(stream, record)
        self._held.clear()

    def _put_signals(self, stream: str, record: StepRecord) -> None:
        self.outlet.put(lambda exporter: exporter.scalars(sent_values.signals(stream, record)))

    def _put_table(self, stream: str, step: int, time: float, reading: Reading) -> None:
        self.outlet.put(lambda exporter: exporter.scalars(sent_values.scalars(stream, step, time, reading)))

    def _due(self, stream: str, table: str, step: int, every_steps: int) -> bool:
        key = (stream, table)
        if key not in self._cadences:
            self._cadences[key] = Cadence(every_steps)
        return self._cadences[key].due(step)


def _send_symptom(symptom: Symptom, exporter: Exporter) -> None:
    exporter.symptom(symptom)


def _send_histograms(exporter: Exporter, stream: str, step: int, time: float, reading: Reading) -> None:
    for histogram in sent_values.histograms(stream, step, time, reading):
        exporter.histogram(histogram)


def _joining(found: ActiveRun) -> Exporter:
    return load_tool(found.tool).join(found.handle)
