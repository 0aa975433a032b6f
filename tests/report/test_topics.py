"""Precision, machine and health: what was seen, and in words what was not."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import builders
import tabled
from steadytrain.report.health import health
from steadytrain.report.report_values import Topic
from steadytrain.report.table_readings import read
from steadytrain.report.topics import DEVICES_MAX, machine, precision
from steadytrain.storage.run_folder import open_run


def topics(run: Path) -> tuple[Topic, Topic]:
    opened = open_run(run)
    window, readings = opened.scalars("main"), read(opened, "main")
    return precision(opened, window, readings), machine(opened, window, readings)


def facts(topic: Topic) -> dict[str, str]:
    return {fact.label: fact.value for fact in topic.facts}


def test_what_was_not_seen_or_not_recorded_is_said(tmp_path: Path) -> None:
    held, machines = topics(builders.quiet_run(tmp_path / "run"))
    assert held.curves == machines.curves == ()
    assert held.sentences == (
        "No gradient scaler was seen, so there is no loss scale and no skipped step.",
        "No clipping of gradients was seen.",
        "Overflow of gradients was not recorded.",
        "Underflow of gradients was not recorded.",
    )
    assert machines.sentences[0] == "Waiting for data was not recorded."
    assert "The machine was not recorded." in machines.sentences


def test_a_run_that_did_not_know_these_signals_does_not_claim_that_they_were_looked_for(tmp_path: Path) -> None:
    run = open_run(builders.quiet_run(tmp_path / "run"))
    window = run.scalars("main")
    old = dataclasses.replace(
        window, signals={"loss": window.signals["loss"]}, present={"loss": window.present["loss"]}
    )
    assert precision(run, old, read(run, "main")).sentences == (
        "The gradient scaler, clipping, overflow and underflow were not recorded.",
    )


def test_a_signal_that_moved_is_a_curve_and_one_that_stood_still_a_fact(tmp_path: Path) -> None:
    steps = 20
    moved = {"loss_scale": 2.0 ** np.arange(steps), "underflow_share": np.linspace(0, 0.1, steps)}
    still = {"overflow_share": np.zeros(steps), "clip_coefficient": np.ones(steps)}
    run = builders.quiet_run(tmp_path / "run", steps=tabled.with_signals(steps, **moved, **still))
    held, _ = topics(run)
    assert [curve.name for curve in held.curves] == ["loss_scale", "underflow_share"]
    assert held.curves[0].logarithmic
    assert facts(held)["clip coefficient"] == "1 throughout"
    assert facts(held)["share of gradient elements that overflowed"] == "0 throughout"
    assert held.sentences == ()


def test_clipping_before_unscaling_comes_first_and_says_what_to_call(tmp_path: Path) -> None:
    stored = {**builders.FACTS, "clipped_before_unscaling": 3}
    held, _ = topics(builders.quiet_run(tmp_path / "run", facts=stored))
    assert held.sentences[0].startswith("Gradients were clipped in 3 steps while they still carried the loss scale")
    assert "scaler.unscale_(optimizer)" in held.sentences[0]


def test_formats_are_named_and_an_output_near_the_limit_is_placed(tmp_path: Path) -> None:
    formats = {"parameters": {"torch.float32": 100, "torch.bfloat16": 20}, "autocast": {"cpu": "torch.bfloat16"}}
    run = builders.quiet_run(tmp_path / "run", facts={**builders.FACTS, "precision": formats})
    tabled.modules(run, (10, 20), ("up", "down"), headroom=np.array([[0.1, 0.2], [0.1, 0.75]]))
    held, _ = topics(run)
    assert facts(held)["parameters"] == "float32 (100), bfloat16 (20)"
    assert facts(held)["autocast"] == "bfloat16 on cpu"
    assert facts(held)["largest output"] == "0.75 of the largest number of its format, in down at step 20"


@pytest.mark.parametrize("odd", [3, "text", [1], {"parameters": [1]}, {"parameters": {"a": {"b": 1}}}, None])
def test_odd_facts_are_no_error(tmp_path: Path, odd: Any) -> None:
    stored = {**builders.FACTS, **dict.fromkeys(("precision", "machine", "machine_notes"), odd)}
    topics(builders.quiet_run(tmp_path / "run", facts={**stored, "clipped_before_unscaling": odd}))


def test_an_absent_accelerator_is_said_and_not_drawn_as_zero(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    tabled.machine(run, (1, 2, 3), {"host": {"process_memory_bytes": 2e9, "available_memory_bytes": 8e9}})
    _, found = topics(run)
    assert [curve.title for curve in found.curves] == ["host: memory of the process, GB"]
    assert found.curves[0].largest == pytest.approx(2.4)
    assert facts(found)["host: memory available on the host, GB"] == "8 throughout"
    assert "No accelerator was used, so its memory, temperature and power were not recorded." in found.sentences
    assert "host did not report: busy share of the processors." in found.sentences


def test_accelerators_tell_what_should_be_zero_and_are_bounded(tmp_path: Path) -> None:
    run = builders.quiet_run(tmp_path / "run")
    one = {"allocated_bytes": 1e9, "temperature_c": 90.0, "xid_errors": 2.0, "slowed_by_heat": 1.0}
    tabled.machine(run, (1, 2), {"host": {}, **{f"cuda:{index}": one for index in range(DEVICES_MAX + 3)}})
    _, found = topics(run)
    assert facts(found)["cuda:0: errors reported by the driver (XID)"] == "2"
    assert facts(found)["cuda:0: slowed down by heat"] == "2 of 2 readings"
    assert f"cuda:{DEVICES_MAX}: temperature, degrees Celsius" not in facts(found)
    assert f"{DEVICES_MAX} of {DEVICES_MAX + 3} accelerators are shown." in found.sentences


# The same in a few lines, for a terminal.


def test_health_is_the_newest_reading_and_none_where_nothing_was_measured(tmp_path: Path) -> None:
    run = open_run(builders.quiet_run(tmp_path / "quiet"))
    nothing = health(run, "main", run.scalars("main"))
    assert nothing.facts() == ()
    assert nothing.to_json() == {
        "update_ratios": [],
        "data_wait_share": None,
        "loss_scale": None,
        "scaler_skips": None,
    }
    signals = {"loss_scale": [65536.0, 32768.0], "scaler_skips": [0.0, 1.0], "data_wait_s": [0.05, 0.0]}
    path = builders.quiet_run(tmp_path / "run", steps=tabled.with_signals(2, **signals))
    ratios = np.array([[9.0, 9.0, 9.0, 9.0], [0.1, np.nan, 0.3, 0.2], [np.nan] * 4])
    tabled.tensors(path, (1, 2, 3), ("a", "b", "c", "d"), update_ratio=ratios)
    run = open_run(path)
    found = health(run, "main", run.scalars("main"))
    assert [entry.tensor for entry in found.update_ratios] == ["c", "d", "a"]
    assert found.update_ratio_step == 2
    assert found.data_wait_share == pytest.approx(0.25)
    assert (found.loss_scale, found.scaler_skips) == (32768.0, 1)
    assert [fact.label for fact in found.facts()] == ["largest updates", "data wait", "loss scale"]
