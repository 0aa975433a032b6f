"""The options of a run."""

from __future__ import annotations

import os

import pytest

from steadytrain import exporters
from steadytrain.attach import folder_names, options
from steadytrain.attach.options import Options
from steadytrain.core.errors import UsageError


def test_a_broken_plug_in_of_a_tool_costs_the_tools_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken() -> None:
        raise KeyError("planted")

    monkeypatch.setattr(exporters, "known_tools", broken)
    assert Options(to="wandb").to == ("none",)
    assert "the tools of --to could not be checked (KeyError: 'planted')" in capsys.readouterr().err


def test_a_tool_of_no_such_name_is_refused() -> None:
    with pytest.raises(UsageError, match="'nothing': no exporter has that name"):
        Options(to="nothing")


def test_a_name_that_no_file_system_takes_loses_its_middle() -> None:
    names = [f"{'é' * 300}-{stamp}" for stamp in ("20260101-000000", "20260101-000001")]
    short = [folder_names.shortened(name) for name in names]
    assert all(len(os.fsencode(name)) < 220 for name in short)
    assert short[0].endswith("-20260101-000000")
    assert len(set(short)) == 2
    assert folder_names.shortened("train-20260101-000000") == "train-20260101-000000"


@pytest.mark.parametrize("broken", ["check_urls", "check_command"])
def test_a_broken_check_of_alerts_costs_the_alerts_and_not_the_run(
    broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(options, broken, breaks)
    made = Options(on_incident="true")
    assert (tuple(made.notify), made.on_incident) == ((), "")
    assert "the options of alerts could not be checked (RuntimeError: planted)" in capsys.readouterr().err
