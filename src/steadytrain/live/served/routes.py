"""From the path of a request to its answer. Names of runs are looked up below one folder, and never leave it."""

from __future__ import annotations

import hmac
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from steadytrain.core.errors import UsageError
from steadytrain.live.follower import CURVES
from steadytrain.live.served.answers import OWN_POLICY, Answer, document, html, refused, shell
from steadytrain.live.served.diagnosing import Diagnosing
from steadytrain.live.served.run_states import COLUMNS_MAX, RunStates
from steadytrain.live.served.runs_listed import RunsListed
from steadytrain.live.served.trial_table import TrialTable
from steadytrain.live.served.trials_seen import answer_places, finished_trials
from steadytrain.report.html import Served
from steadytrain.report.wording import clean
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import RUN_FILE
from steadytrain.storage.run_index import INDEX_FILE, SIDE_FILES
from steadytrain.storage.run_search import run_of
from steadytrain.storage.staged_bundle import INCIDENTS_FOLDER

PAGES_KEPT = 8
"""Whole pages that are kept: one takes up to 2 MB and some seconds."""

COLUMNS_DEFAULT = 600
NAME_BYTES_MAX = 255
TOKEN_BYTES = 24
TOKEN_HEADER = "x-steadytrain-token"
"""A page of another host can neither read the token nor send this header without being asked about it first."""

_FILES = {"ui.css": "text/css", "runs.js": "text/javascript", "run.js": "text/javascript"}


class PageMaker(Protocol):
    """Makes whole pages. Each method may raise ``UsageError``."""

    def report(self, path: Path, served: Served) -> str: ...

    def compare(self, paths: tuple[Path, Path]) -> str: ...

    def explanations(self) -> Mapping[str, Mapping[str, str]]: ...

    def explanation(self, name: str) -> str: ...


@dataclass
class Routes:
    """The answers for the runs below ``root``. ``diagnosing`` is None where nothing may be started."""

    root: Path
    pages: PageMaker
    diagnosing: Diagnosing | None = None
    states: RunStates = field(default_factory=RunStates)

    def __post_init__(self) -> None:
        self._listed = RunsListed(self.root)
        self._kept: OrderedDict[tuple[str, object], Answer] = OrderedDict()
        self._trials = TrialTable()
        self._token = secrets.token_urlsafe(TOKEN_BYTES)
        self._making = threading.Lock()  # one whole page at a time bounds the memory

    def answer(self, parts: tuple[str, ...], query: Mapping[str, str]) -> Answer:
        """The answer to a path, split at its slashes and unquoted."""
        try:
            return self._found(parts, query)
        except UsageError as error:
            return refused(404, str(error))

    def act(self, parts: tuple[str, ...], headers: Mapping[str, str]) -> Answer:
        """The answer to a POST: start or stop a diagnosis, for a page of this server alone."""
        own = headers.get("origin") == f"http://{headers.get('host')}"
        if not own or not hmac.compare_digest(headers.get(TOKEN_HEADER, "").encode(), self._token.encode()):
            return refused(403, "only a page of this server starts something: load the page again")
        try:
            match parts:
                case ("run", name, "incident", bundle, ("diagnose" | "stop") as what):
                    source = self._incident(self._run(name), bundle)
                case ("run", name, ("diagnose" | "stop") as what):
                    source = self._run(name)
                case _:
                    raise UsageError("there is no such page")
            if self.diagnosing is None:
                raise UsageError("this server starts nothing")
            (self.diagnosing.start if what == "diagnose" else self.diagnosing.stop)(source)
        except UsageError as error:
            return document({"refused": str(error)})
        return self._diagnosis(source)

    def _found(self, parts: tuple[str, ...], query: Mapping[str, str]) -> Answer:
        match parts:
            case ():
                return html(shell("Runs", _RUNS, script="runs.js"))
            case ("runs.json",):
                return document(self._listed.read())
            case (name,) if name in _FILES:
                content = files("steadytrain.live.served").joinpath(name).read_bytes()
                return Answer(content, f"{_FILES[name]}; charset=utf-8")
            case ("explain",):
                return html(shell("Explanations", _explanations(self.pages)))
            case ("explain", name):
                text = escape(self.pages.explanation(name))
                return html(shell(name, f"<h1>{escape(name)}</h1><pre>{text}</pre>"))
            case ("compare",):
                if not query.get("a") or not query.get("b"):
                    raise UsageError("choose one run in column A and one in column B")
                paths = (self._run(query["a"]), self._run(query["b"]))
                with self._making:
                    return html(self.pages.compare(paths), policy=OWN_POLICY)
            case ("run", name):
                return html(shell(clean(name), _RUN, script="run.js", data={"run": quote(self._run(name).name)}))
            case ("run", name, "state.json"):
                run = self._run(name)
                return self.states.state(run, lambda: {"trials": finished_trials(run)})
            case ("run", name, "curve.json"):
                return self._curve(self._run(name), query)
            case ("run", name, "page"):
                return self._page(self._run(name))
            case ("run", name, "diagnosis.json"):
                return self._diagnosis(self._run(name))
            case ("run", name, "incident", bundle):
                return self._page(self._incident(self._run(name), bundle))
            case ("run", name, "incident", bundle, "diagnosis.json"):
                return self._diagnosis(self._incident(self._run(name), bundle))
        raise UsageError("there is no such page")

    def _run(self, name: str) -> Path:
        path = self.root / name
        if not _is_plain(name) or not (path / RUN_FILE).is_file():
            raise UsageError(f"{clean(name[:200])}: no such run here")
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise UsageError(f"{clean(name[:200])}: lies outside the folder of runs")
        return path

    def _incident(self, run: Path, name: str) -> Path:
        path = run / INCIDENTS_FOLDER / name
        inside = _is_plain(name) and is_bundle(path) and path.resolve().is_relative_to(run.resolve())
        if not inside:
            raise UsageError(f"{clean(name[:200])}: no such incident of {clean(run.name)}")
        return path

    def _curve(self, run: Path, query: Mapping[str, str]) -> Answer:
        signal = query.get("signal", "")
        if signal not in CURVES:
            raise UsageError(f"{signal[:80]}: no such curve; there are {', '.join(CURVES)}")
        try:
            columns = int(query.get("columns", COLUMNS_DEFAULT))
            span = (int(query["first"]), int(query["last"])) if "first" in query else None
        except (ValueError, KeyError):
            raise UsageError("columns, first and last must be whole numbers") from None
        if not 1 <= columns <= COLUMNS_MAX or (span is not None and not 0 <= span[0] <= span[1] < 1 << 62):
            raise UsageError(f"columns must be 1 to {COLUMNS_MAX}, and first not above last")
        return self.states.curve(run, signal, span, columns)

    def _page(self, path: Path) -> Answer:
        """A whole page, made again only when its run has new symptoms, incidents, answers or an end."""
        run = run_of(path)
        index = (run / f"{INDEX_FILE}{end}" for end in ("", SIDE_FILES[0]))
        key = (str(path), tuple(_signature(one) for one in (*index, *answer_places(run))))
        with self._making:
            if key not in self._kept:
                self._kept[key] = html(self.pages.report(path, self._served(path, run)), policy=OWN_POLICY)
                while len(self._kept) > PAGES_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(key)
            return self._kept[key]

    def _served(self, path: Path, run: Path) -> Served:
        """Where the page leads, and whether it starts a diagnosis: for a run with incidents, their pages do."""
        here = f"/run/{quote(run.name)}"
        links = (("Runs", "/"), (clean(run.name), here), ("Explanations", "/explain"))
        if path != run:
            return Served(links, f"{here}/incident/{quote(path.name)}", self._token_of_pages(), str(path))
        has_incidents = any(is_bundle(one) for one in (run / INCIDENTS_FOLDER).glob("step-*"))
        return Served(links, "" if has_incidents else here, self._token_of_pages(), str(path))

    def _token_of_pages(self) -> str:
        return self._token if self.diagnosing is not None else ""

    def _diagnosis(self, source: Path) -> Answer:
        """What is known of a diagnosis. One that is starting or ending has no trials yet, or still its old ones."""
        known = self._trials.document(source)
        ours = self.diagnosing is not None and self.diagnosing.is_running(source)
        end = self.diagnosing.end_of(source) if self.diagnosing is not None else ""
        return document(
            {**known, "running": ours or known["running"], "ours": ours, "end": clean(end, length_max=4000)}
        )


def _is_plain(name: str) -> bool:
    """Whether a name is that of one folder: no way up, no way elsewhere, nothing hidden, none that cannot exist."""
    return (
        len(os.fsencode(name)) <= NAME_BYTES_MAX
        and name.isprintable()
        and name[:1] not in ("", ".")
        and Path(name).name == name
    )


def _signature(file: Path) -> object:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def _explanations(pages: PageMaker) -> str:
    parts = ["<h1>Explanations</h1>"]
    for heading, entries in pages.explanations().items():
        rows = "".join(
            f"<tr><td><a href='/explain/{quote(name)}'>{escape(name)}</a></td><td>{escape(told)}</td></tr>"
            for name, told in entries.items()
        )
        parts.append(f"<h2>{escape(heading)}</h2><table><tbody>{rows}</tbody></table>")
    return "".join(parts)


_RUNS = (
    "<h1>Runs</h1><p id='told' class='faint' role='status'>reading the runs</p>"
    "<form action='/compare'><table id='runs'><thead><tr><th>state<th>worst symptom<th>run<th class='number'>steps"
    "<th class='number'>incidents<th>started<th>A<th>B</tr></thead><tbody></tbody></table>"
    "<p><button>Compare A with B</button> <span class='faint'>choose one run in each column</span></p></form>"
    "<ul id='unreadable'></ul>"
)
_CURVE = (
    "<h2>{title} <span class='faint' id='{signal}-told'></span></h2>"
    "<canvas id='{signal}' tabindex='0' role='img' aria-describedby='{signal}-told'></canvas>"
)
_RUN = (
    "<h1 id='name'>&#8203;</h1><p id='state' role='status'>reading the run</p><p id='pace'></p>"
    "<p><a id='page' href='page'>report of the whole run</a> <span id='incidents'></span></p><section>"
    + "".join(_CURVE.format(signal=signal, title=title) for signal, title in CURVES.items())
    + "<p><button id='whole' type='button'>whole run</button> <span class='faint'>drag to zoom; arrow keys move, "
    "+ and - zoom</span></p></section><p id='precision'></p><p id='machine'></p>"
    "<div id='trials'></div><h2>Symptoms, newest first</h2><table id='symptoms'><tbody></tbody></table>"
    "<h2>Layers, worst first</h2><p><label>show only <input id='filter' maxlength='80'></label> <span class='faint' "
    "id='layers-told'></span></p><table id='layers'><thead><tr><th>parameter<th class='number'>gradient"
    "<th class='number'>peak/usual<th class='number'>update/weight</tr></thead><tbody></tbody></table>"
    "<ul id='notes'></ul>"
)
