"""The page: one file, no network, and no text of a run that becomes markup."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

import builders
from steadytrain.model import BadTensor, Finding, Symptom
from steadytrain.report import build, html, values, zoom
from steadytrain.store.bundle import open_bundle
from steadytrain.store.folder import open_run

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


def page(report: values.Report, renderer: str) -> str:
    return html.page(report, zoom.zoom(report) if renderer == "bokeh" else None, version="0.1.0")


def test_nothing_is_loaded_from_anywhere(tmp_path: Path, renderer: str) -> None:
    found = Elements(page(build.from_run(open_run(builders.bad_run(tmp_path / "run"))), renderer))
    for tag, attributes in found.elements:
        assert not set(attributes) & {"src", "href", "srcset", "data", "action", "xlink:href", "background"}, tag
        assert tag not in ("link", "iframe", "object", "embed", "base", "form")
    (policy,) = [a["content"] for t, a in found.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy


def test_the_styles_load_nothing(tmp_path: Path) -> None:
    text = page(build.from_run(open_run(builders.bad_run(tmp_path / "run"))), "static")
    assert not re.search(r"https?://|//[a-z]|@import|url\(", text)


def test_the_policy_allows_exactly_the_scripts_of_the_page(tmp_path: Path, renderer: str) -> None:
    found = Elements(page(evil_report(tmp_path), renderer))
    (policy,) = [a["content"] for _, a in found.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    allowed = set(re.findall(r"'sha256-([^']+)'", policy))
    run = [text for attributes, text in found.scripts if attributes.get("type") != "application/json"]
    assert {base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in run} == allowed
    assert len(run) == (2 if renderer == "bokeh" else 0)
    assert ("script-src 'none'" in policy) == (renderer == "static")


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


@needs_bokeh
def test_the_drawing_is_json_that_no_name_can_leave(tmp_path: Path) -> None:
    found = Elements(page(evil_report(tmp_path), "bokeh"))
    (data,) = [text for attributes, text in found.scripts if attributes.get("id") == "curves-data"]
    assert not set("<>&") & set(data)
    assert EVIL in json.dumps(json.loads(data), ensure_ascii=False).replace('\\"', '"')


@needs_bokeh
def test_the_largest_page_stays_small_and_keeps_the_order_of_references(tmp_path: Path) -> None:
    text = page(long_report(tmp_path), "bokeh")
    assert len(text.encode()) < SIZE_BYTES_MAX
    (data,) = [script for attributes, script in Elements(text).scripts if attributes.get("id") == "curves-data"]
    # Bokeh reads a reference only after the object that it names.
    for reference in set(re.findall(r'\{"id":\s*"(p\d+)"\}', data)):
        named = re.search(rf'"id":\s*"{reference}"(?!\}})', data)
        used = re.search(rf'\{{"id":\s*"{reference}"\}}', data)
        assert named is not None
        assert used is not None
        assert named.start() < used.start()


def test_without_bokeh_the_page_draws_the_same_curves_and_says_what_to_install(tmp_path: Path) -> None:
    text = page(build.from_run(open_run(builders.bad_run(tmp_path / "run"))), "static")
    assert text.count('<svg class="curve"') == 3
    assert text.count('class="cross"') == 2
    assert 'class="band critical"' in text
    assert "pip install &#39;steadytrain[report]&#39;" in text
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
