"""What a notebook shows of a run, an incident, a diagnosis and a page: the first screen, inert and offline."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import steadytrain  # noqa: E402
from steadytrain.api.pages import Page  # noqa: E402
from steadytrain.core.notebook import as_card  # noqa: E402
from steadytrain.diagnosis.answer import Diagnosis, RankedCause  # noqa: E402
from steadytrain.report import build  # noqa: E402
from steadytrain.report.notebook_card import BACKGROUNDS, card, python_call  # noqa: E402

HOSTILE = "<script>alert(1)</script>"
INERT = {"div", "span", "b", "pre", "svg", "path", "rect", "text", "title", "a"}


class Tags(HTMLParser):
    """The tags and attributes of a piece of HTML; refuses one that is not closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in ("path", "rect") or not self.get_starttag_text().endswith("/>"):  # type: ignore[union-attr]
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> steadytrain.Run:
    """A run that stopped at its third step."""
    folder = tmp_path_factory.mktemp("runs")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def train() -> None:
        with steadytrain.watch(model, optimizer, runs_dir=folder, name="run"):
            for step in range(1, 9):
                (model(torch.ones(2, 4)) / (step != 3)).square().mean().backward()
                optimizer.step()

    with pytest.raises(steadytrain.RunStopped):
        train()
    return steadytrain.load_run(folder / "run")


def inert(html: str) -> Tags:
    tags = Tags(html)
    assert tags.found <= INERT
    assert not any(name.startswith("on") for name in tags.attributes)
    assert "http" not in html
    assert "url(" not in html
    return tags


def test_a_run_shows_the_first_screen_of_its_page(run: steadytrain.Run) -> None:
    tags = inert(run._repr_html_())
    first = build.from_run(run).first
    assert first is not None
    for words in (first.headline, *(word.text for word in first.status), "steadytrain.diagnose("):
        assert words in tags.text
    assert "svg" in tags.found


def test_an_incident_shows_its_operation(run: steadytrain.Run) -> None:
    (incident,) = run.open_incidents()
    assert "aten.div" in inert(incident._repr_html_()).text


def test_text_from_disk_is_shown_as_text(run: steadytrain.Run) -> None:
    (incident,) = run.open_incidents()
    symptom = replace(incident.symptoms[0], message=HOSTILE)
    html = replace(incident, run=HOSTILE, symptoms=(symptom,))._repr_html_()
    assert HOSTILE in inert(html).text
    assert "<script" not in html


def test_a_diagnosis_whose_run_is_gone_shows_what_it_says_itself() -> None:
    cause = RankedCause("bad-batch", "a <row>", "likely", 0.7, (), None, (), ())
    diagnosis = Diagnosis("runs/gone", "loss-spike", "exact", "", "bad-batch", "likely", "why", (cause,), ())
    text = inert(diagnosis._repr_html_()).text
    assert "a <row>" in text
    assert "likely" in text


def test_a_page_is_its_path_and_draws_itself(run: steadytrain.Run, tmp_path: Path) -> None:
    page = steadytrain.report(run, tmp_path / "a page.html")
    assert page == tmp_path / "a page.html"
    assert page.is_file()
    assert isinstance(page, Page)
    text = page._repr_html_() or ""
    inert(text)
    assert f'href="{tmp_path}/a%20page.html"' in text
    assert page.parent._repr_html_() is None  # type: ignore[attr-defined]


def test_curves_are_drawn_with_what_was_not_finite(run: steadytrain.Run) -> None:
    drawing = run.plot()
    tags = inert(drawing._repr_html_())
    assert "gradient norm" in tags.text
    assert "✗" in tags.text
    assert repr(drawing) == "<Curves of run; a notebook draws it>"
    with pytest.raises(steadytrain.UsageError, match="no stream 'other'; it has: main"):
        run.plot("other")


def test_a_value_that_cannot_be_drawn_is_a_table_and_no_error(run: steadytrain.Run, tmp_path: Path) -> None:
    gone = replace(run, path=tmp_path / "gone", incidents=(tmp_path / "gone" / "x",))
    assert "<table>" in as_card(object(), "title", {"a": 1})
    assert gone._repr_html_()
    with pytest.raises(TypeError):
        card(object())


@pytest.mark.parametrize(
    ("line", "call"),
    [
        ("steadytrain diagnose 'a run'", "steadytrain.diagnose('a run')"),
        ("steadytrain report run", "steadytrain.report('run')"),
    ],
)
def test_a_command_is_a_call_of_the_function(line: str, call: str) -> None:
    assert python_call(line) == call


def test_another_command_is_one_of_the_shell() -> None:
    assert re.fullmatch(r"!\S.* fix run --write", python_call("steadytrain fix run --write"))


@pytest.mark.parametrize("colour", BACKGROUNDS.values())
def test_white_text_can_be_read_on_each_ground(colour: str) -> None:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [one / 12.92 if one <= 0.03928 else ((one + 0.055) / 1.055) ** 2.4 for one in channels]
    luminance = sum(weight * one for weight, one in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    assert 1.05 / (luminance + 0.05) >= 4.5
