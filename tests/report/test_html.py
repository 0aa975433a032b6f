"""The page: one file, no network, and no text of a run that becomes markup."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
import zlib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import builders
import tabled
from steadytrain.core.incident import BadTensor, Finding
from steadytrain.core.model import Symptom
from steadytrain.report import build, html, zoom
from steadytrain.report import report_values as values
from steadytrain.report.measured import with_measured
from steadytrain.storage.bundle import open_bundle
from steadytrain.storage.run_folder import open_run

SIZE_BYTES_MAX = 2_000_000
EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'`{{ 7 * 7 }}<!--"
needs_bokeh = pytest.mark.skipif(importlib.util.find_spec("bokeh") is None, reason="bokeh is not installed")


class Elements(HTMLParser):
    """Every element of a page with its attributes, and the text of its scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._open: dict[str, str | None] | None = None
        self._text: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag == "script":
            self._open, self._text = dict(attrs), []

    def handle_data(self, data: str) -> None:
        if self._open is not None:
            self._text.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self._open is not None:
            self.scripts.append((self._open, "".join(self._text)))
            self._open = None


def evil_report(path: Path) -> values.Report:
    incident = builders.incident(
        run=EVIL,
        loss_origin=EVIL,
        batch_note=EVIL,
        state_note=EVIL,
        symptoms=(builders.symptom(name=EVIL, message=EVIL, tensors=(EVIL,)),),
        parameters=(BadTensor(EVIL, (1,), EVIL, 1, 0, 1),),
        finding=Finding(builders.located(module=EVIL, file=EVIL, code=EVIL, operation=EVIL, chain=(EVIL,)), EVIL),
    )
    environment = {**builders.ENVIRONMENT, "argv": [EVIL], EVIL: {EVIL: EVIL}}
    environment["model"] = {"class": EVIL, "structure": EVIL}
    return build.from_bundle(open_bundle(builders.write_bundle(path / "evil", incident, environment=environment)))


def long_report(path: Path) -> values.Report:
    """As much as a report can hold: more steps, symptoms and incidents than it shows."""
    steps = builders.records(20_000, nan_at=19_000)
    random = np.random.default_rng(1)
    symptoms = [
        Symptom(f"symptom-{index}", "warning", int(step), int(step) + 50, "x" * 500, tensors=("layer." * 10,) * 20)
        for index, step in enumerate(sorted(random.integers(0, 20_000, 150)))
    ]
    incidents = [builders.incident(step) for step in range(19_000, 19_010)]
    return build.from_run(open_run(builders.bad_run(path / "run", steps=steps, symptoms=symptoms, incidents=incidents)))


@pytest.fixture(params=["static", pytest.param("bokeh", marks=needs_bokeh)])
def renderer(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def measured_report(path: Path, *, tensor: str = "model.head.weight") -> values.Report:
    """A run whose tables have everything that a page draws; one tensor is named ``tensor``."""
    run = builders.bad_run(path, facts={**builders.FACTS, "precision": {"parameters": {tensor: 1}, "autocast": tensor}})
    rows = ("model.embed.weight", tensor)
    tabled.gradients(run, rows, np.array([[1.0, 2.0], [np.nan, 0.5], [-1.0, 0.1]]))
    tabled.tensors(run, range(1, 4), rows, update_ratio=np.array([[1e-3, 2e-3]] * 3))
    tabled.modules(run, range(1, 4), ("model.embed", tensor), zero_share=np.array([[0.1, 0.9]] * 3))
    tabled.histograms(run, range(1, 4), (f"gradient:{tensor}", f"weight:{tensor}", f"activation:{tensor}"))
    tabled.machine(run, range(1, 4), {"host": {"process_memory_bytes": 2e9}, tensor: {"allocated_bytes": 1e9}})
    opened = open_run(run)
    return with_measured(build.from_run(opened), opened)


def runs_as_script(attributes: dict[str, str | None]) -> bool:
    """Whether a browser runs a script element: data has a type that is no script's."""
    return attributes.get("type", "module") in ("", "module", "text/javascript", "application/javascript", "importmap")


def unpacked(data: str) -> str:
    """The JSON text that ``zoom.js`` and ``readout.js`` read."""
    return zlib.decompress(base64.b64decode(data, validate=True)).decode()


def drawing_of(text: str) -> str:
    """The drawing of a page with bokeh, as JSON text."""
    (data,) = [script for attributes, script in Elements(text).scripts if attributes.get("id") == "drawing"]
    return unpacked(data)


def strings(document: object) -> Iterator[str]:
    """Every text in a JSON document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        yield from document
        for entry in document.values():
            yield from strings(entry)
    elif isinstance(document, list):
        for entry in document:
            yield from strings(entry)


def page(report: values.Report, renderer: str) -> str:
    return html.page(report, zoom.zoom(report) if renderer == "bokeh" else None, version="0.1.0")


def test_nothing_is_loaded_from_anywhere(tmp_path: Path, renderer: str) -> None:
    found = Elements(page(measured_report(tmp_path / "run"), renderer))
    pictures = 0
    for tag, attributes in found.elements:
        assert not set(attributes) & {"srcset", "data", "action", "xlink:href", "background", "style"}, tag
        assert tag not in ("link", "iframe", "object", "embed", "base", "form", "use")
        if tag == "a":
            assert re.fullmatch(r"#part-\d+|#step-412", str(attributes["href"]))
            continue
        for name in {"src", "href"} & set(attributes):
            assert str(attributes[name]).startswith("data:image/png;base64,"), (tag, name)
            pictures += 1
    assert pictures >= 6
    (policy,) = [a["content"] for t, a in found.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "img-src data:;" in policy
    assert "http" not in policy


def test_the_styles_load_nothing(tmp_path: Path) -> None:
    text = page(measured_report(tmp_path / "run"), "static")
    styles = "".join(re.findall(r"<style>(.*?)</style>", text, re.DOTALL))
    assert ".curve" in styles
    # A pattern of the page itself is no load.
    assert not re.search(r"https?:|//|@import|@font-face|image-set|src\(|url\((?!#hatching\))", styles)


def test_the_policy_allows_exactly_the_scripts_of_the_page(tmp_path: Path, renderer: str) -> None:
    for report, scripts in (
        (evil_report(tmp_path), {"bokeh": 4, "static": 2}),
        (measured_report(tmp_path / "run", tensor=EVIL), {"bokeh": 4, "static": 3}),
    ):
        found = Elements(page(report, renderer))
        (policy,) = [a["content"] for _, a in found.elements if a.get("http-equiv") == "Content-Security-Policy"]
        assert policy is not None
        (allowed,) = re.findall("script-src ([^;]*);", policy)
        run = [text for attributes, text in found.scripts if runs_as_script(attributes)]
        hashes = [f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in run]
        assert allowed == (" ".join(hashes) or "'none'")
        assert len(run) == scripts[renderer]


def test_text_of_a_run_never_becomes_markup(tmp_path: Path, renderer: str) -> None:
    plain = Elements(page(build.from_bundle(open_bundle(builders.write_bundle(tmp_path / "plain"))), renderer))
    text = page(evil_report(tmp_path), renderer)
    found = Elements(text)
    assert [t for t, _ in found.elements if t in ("script", "img")] == [
        t for t, _ in plain.elements if t in ("script", "img")
    ]
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    assert "<script>alert" not in text
    assert "alert(1)&lt;/script&gt;" in text
    assert "49" not in re.findall(r"<title>(.*?)</title>", text)[0]


def test_no_name_of_a_layer_becomes_markup_or_leaves_its_script(tmp_path: Path, renderer: str) -> None:
    plain = Elements(page(measured_report(tmp_path / "plain"), renderer))
    text = page(measured_report(tmp_path / "evil", tensor=EVIL), renderer)
    found = Elements(text)
    assert [tag for tag, _ in found.elements if tag in ("script", "img")] == [
        tag for tag, _ in plain.elements if tag in ("script", "img")
    ]
    assert not any(name.startswith("on") for _, attributes in found.elements for name in attributes)
    assert "<script>alert" not in text
    assert text.count("alert(1)&lt;/script&gt;") >= 6
    for attributes, script in found.scripts:
        if attributes.get("type") == "application/octet-stream":
            assert EVIL in [*strings(json.loads(unpacked(script)))]


def test_a_step_has_an_address(tmp_path: Path, renderer: str) -> None:
    """Symptoms lead to their step in the curves, as far as the curves have it."""
    report = long_report(tmp_path)
    found = Elements(page(report, renderer))
    (curves,) = [attributes for _, attributes in found.elements if attributes.get("id") == "curves"]
    first, last = int(str(curves["data-first"])), int(str(curves["data-last"]))
    assert (first, last) == (min(report.curves[0].steps), max(report.curves[0].steps))
    links = [str(attributes["href"]) for tag, attributes in found.elements if tag == "a"]
    asked = {int(link.removeprefix("#step-")) for link in links if link.startswith("#step-")}
    shown = {symptom.first_step for symptom in report.symptoms}
    assert asked == {step for step in shown if first <= step <= last}
    assert len(asked) > 10
    drawn = [attributes for tag, attributes in found.elements if tag == "svg" and "data-left" in attributes]
    assert len(drawn) >= len(report.curves)
    assert {(int(str(one["data-first"])), int(str(one["data-last"]))) for one in drawn} >= {(first, last)}


@needs_bokeh
def test_the_drawing_is_json_that_no_name_can_leave(tmp_path: Path) -> None:
    found = Elements(page(evil_report(tmp_path), "bokeh"))
    (data,) = [text for attributes, text in found.scripts if attributes.get("id") == "drawing"]
    assert not set("<>&") & set(data)
    assert EVIL in [*strings(json.loads(unpacked(data)))]


@pytest.mark.long
@needs_bokeh
def test_the_largest_page_stays_small_and_keeps_the_order_of_references(tmp_path: Path) -> None:
    text = page(long_report(tmp_path), "bokeh")
    assert len(text.encode()) < SIZE_BYTES_MAX
    data = drawing_of(text)
    # Bokeh reads a reference only after the object that it names.
    references = set(re.findall(r'\{"id":\s*"(p\d+)"\}', data))
    assert references
    for reference in references:
        named = re.search(rf'"id":\s*"{reference}"(?!\}})', data)
        used = re.search(rf'\{{"id":\s*"{reference}"\}}', data)
        assert named is not None
        assert used is not None
        assert named.start() < used.start()


def test_without_bokeh_the_page_draws_the_same_curves_and_says_what_to_install(tmp_path: Path) -> None:
    text = page(build.from_run(open_run(builders.bad_run(tmp_path / "run"))), "static")
    # Three curves, and the loss around the incident for a wide and for a narrow screen.
    assert text.count('<svg class="curve"') == 5
    assert text.count('class="cross"') == 4
    assert 'class="band critical"' in text
    assert "pip install &#39;bokeh&gt;=" in text
    assert len(text) < 100_000


def test_bokeh_that_is_not_installed_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "bokeh", None)
    assert zoom.zoom(build.from_run(open_run(builders.bad_run(tmp_path / "run")))) is None


@pytest.mark.parametrize(
    "values",
    [[1.0], [np.nan], [np.inf, -np.inf], [0.0, 0.0], [1e-30, 1e30], [5.0, np.nan, 5.0], [-1.0, 2.0], [1e308, -1e308]],
)
def test_curves_of_any_shape_are_drawn(tmp_path: Path, renderer: str, values: list[float]) -> None:
    steps = [
        type(record)(record.step, record.time, {"loss": value, "gradient_norm": value}, record.gradient_norms)
        for record, value in zip(builders.records(len(values)), values, strict=True)
    ]
    text = page(build.from_run(open_run(builders.quiet_run(tmp_path / "run", steps=steps))), renderer)
    assert text.count('<svg class="curve"') == 2
    assert not re.search(r'="(nan|inf|-inf)"', text)


def test_a_quiet_run_has_a_page(tmp_path: Path, renderer: str) -> None:
    text = page(build.from_run(open_run(builders.quiet_run(tmp_path / "run"))), renderer)
    assert "No symptom was seen" in text
    assert '<header class="silent">' in text


def test_a_page_names_the_command_that_works_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadytrain.core.own_command.own_command", lambda: "/opt/env/bin/python -m steadytrain")
    report = build.from_run(open_run(builders.bad_run(tmp_path / "run")))
    text = html.page(report, None, version="1")
    assert report.commands[0].line.startswith("steadytrain diagnose")
    assert "/opt/env/bin/python -m steadytrain diagnose" in text


def test_a_page_does_not_tell_to_write_itself(tmp_path: Path, renderer: str) -> None:
    report = build.from_run(open_run(builders.quiet_run(tmp_path / "run")))
    assert any("report.html" in command.line for command in report.commands)
    assert "keep this as a page" not in page(report, renderer)
