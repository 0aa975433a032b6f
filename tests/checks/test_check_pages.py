"""Every check is documented in the same form, found by being there, and told of by `explain` without torch."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner

from steadytrain.checks.subject.model_check import CHECK_PAGES, CHECKS
from steadytrain.cli.explain import command
from steadytrain.core import plugins
from steadytrain.core.errors import UsageError
from steadytrain.core.plugin_pages import Page
from steadytrain.grouping import catalog

ROOT = Path(__file__).parents[2]
every_check = pytest.mark.parametrize("page", CHECK_PAGES.shipped(), ids=lambda page: page.name)


@every_check
def test_its_docstring_is_in_the_form_that_explain_prints(page: Page) -> None:
    assert page.summary.endswith(".")
    assert page.summary.count(". ") == 0
    assert page.sections["means"]
    assert page.sections["causes"].startswith("- ")
    assert page.sections["next"].startswith("1. ")
    assert page.first_step
    assert page.traits["cost"] in ("free", "seconds", "minutes")
    assert page.traits["source"]


@every_check
def test_every_threshold_says_where_its_number_comes_from(page: Page) -> None:
    for threshold in page.thresholds:
        assert threshold.about != "not documented", threshold.name


def test_no_check_has_the_name_of_a_symptom() -> None:
    assert not set(CHECKS.names()) & {catalog.detector_name(type(one)) for one in catalog.detectors()}


def test_explain_knows_checks_and_loads_no_torch() -> None:
    code = (
        "import sys\nfrom steadytrain.cli.explain import command\n"
        "command(['causality'], standalone_mode=False)\nassert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    for part in ("causality: ", "Means:", "Causes:", "Next:", "Thresholds:", "Cost: seconds"):
        assert part in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 120


def test_explain_as_json_and_for_a_name_that_is_near() -> None:
    done = CliRunner().invoke(command, ["--json", "overfit-one-batch"], catch_exceptions=False)
    document = json.loads(done.output)
    assert document["schema"] == "steadytrain.check-explanation/1"
    assert all(
        document[part] for part in ("name", "summary", "means", "causes", "next", "cost", "source", "thresholds")
    )
    with pytest.raises(UsageError, match="did you mean"):
        CliRunner().invoke(command, ["overfit-one-bach"], catch_exceptions=False)


# What other packages bring.


def test_what_the_source_says_is_what_the_class_is() -> None:
    pytest.importorskip("torch")
    from steadytrain.preflight_runs import check_catalog

    found = check_catalog.checks()
    assert len(found) == len(CHECKS.files())
    assert [CHECK_PAGES.of(type(check)) for check in found] == list(CHECK_PAGES.shipped())


class NotACheck:
    """Is none."""


def install(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    points = [EntryPoint(value.rpartition(":")[2], value, CHECKS.group) for value in values]
    monkeypatch.setattr(plugins, "entry_points", lambda group: points if group == CHECKS.group else [])


def test_a_check_of_another_package_is_found_and_run(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from steadytrain import preflight
    from steadytrain.preflight_runs import check_catalog

    install(monkeypatch, "foreign_check:TooFewRows")
    importlib.import_module("foreign_check")
    assert "too-few-rows" in [check_catalog.check_name(type(check)) for check in check_catalog.checks()]
    model = torch.nn.Linear(2, 1)
    batches = [(torch.randn(3, 2), torch.randn(3, 1))]
    report = preflight(
        model=model,
        batches=batches,
        loss_fn=lambda net, batch: torch.nn.functional.mse_loss(net(batch[0]), batch[1]),
        checks=["too-few-rows"],
    )
    assert report.failed == ("too-few-rows",)
    assert report["too-few-rows"].next == "Take more rows."


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("test_check_pages:NotACheck", "not a subclass"),
        ("foreign_check:Demanding", "without a default"),
        ("foreign_check:InitialLoss", "is taken"),
        ("no_such_package_at_all:Check", "ModuleNotFoundError"),
    ],
)
def test_a_broken_one_is_left_out_and_told(monkeypatch: pytest.MonkeyPatch, value: str, why: str) -> None:
    pytest.importorskip("torch")
    from steadytrain.preflight_runs import check_catalog

    install(monkeypatch, value)
    (failed,) = check_catalog.broken()
    assert why in failed.why
    assert len(check_catalog.checks()) == len(CHECKS.files())
