"""The tracer on the scripts of the zoo."""

from __future__ import annotations

import json
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)
from torch.optim.optimizer import register_optimizer_step_pre_hook  # noqa: E402
from traced_faults import (  # noqa: E402
    _one_thread_and_nothing_left_behind,  # noqa: F401 (an autouse fixture)
    tracer_of,
)

from parameters import telling  # noqa: E402
from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.tracing.tracer import NOT_REPRODUCED, OperationTracer  # noqa: E402

ZOO = Path(__file__).parents[2] / "zoo" / "nonfinite"
CASES = json.loads((ZOO / "cases.json").read_text())["cases"]


# The zoo: unmodified scripts, traced from the root's forward to the optimizer's step.


@dataclass
class _Stopped(Exception):  # noqa: N818 (not an error: how the script is ended)
    finding: Finding


def traced_script(script: Path, step: int, monkeypatch: pytest.MonkeyPatch) -> Finding:
    """The finding of one step of a script, the way a watcher would come to it from outside."""
    running: list[OperationTracer] = []
    steps = 1
    engine = torch.autograd._engine_run_backward

    def root_forward(module: nn.Module, args: tuple[Any, ...]) -> None:
        if running or steps != step:
            return
        running.append(tracer_of(module))
        running[0].note_sources({f"args[{place}]": value for place, value in enumerate(args)})
        running[0].__enter__()
        running[0].enter_module(module)

    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        for tracer in running:
            tracer.mark_loss(tensors[0])
        return engine(tensors, *args, **kwargs)

    def before_step(*_: object) -> None:
        nonlocal steps
        if running:
            tracer = running.pop()
            tracer.__exit__(None, None, None)
            assert tracer.trouble is None
            raise _Stopped(tracer.finding())
        steps += 1

    monkeypatch.setattr(torch.autograd, "_engine_run_backward", backward)
    handles = [
        nn.modules.module.register_module_forward_pre_hook(root_forward),
        register_optimizer_step_pre_hook(before_step),
    ]
    try:
        runpy.run_path(str(script), run_name="__main__")
    except _Stopped as stopped:
        return stopped.finding
    finally:
        for handle in handles:
            handle.remove()
    raise AssertionError("the script never came to that step")


OTHERWISE = {
    "group_of_one.py",  # torch warns of it as well
    "root_of_zero_inf.py",  # a parameter of no module, which is not looked at here
    "healthy_compiled.py",  # the tracer does not look into compiled code
}
TRACED = [case for case in CASES if case.get("by") != "locate" and case["script"] not in OTHERWISE]
"""What lies between a forward and its backward; all others are named by the commands (``tests/zoo/test_zoo.py``).

The commands name these, too, in every test run; every third is traced here as well.
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    telling(TRACED, [Path(case["script"]).stem for case in TRACED[::3]], lambda case: Path(case["script"]).stem),
)
def test_the_zoo(case: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    script = ZOO / case["script"]
    finding = traced_script(script, case.get("step", 7), monkeypatch)
    if case["exit"] == 0:
        assert finding == Finding(None, NOT_REPRODUCED)
        return
    # The steps before it are healthy, so a watcher must stop at exactly this one.
    assert traced_script(script, case["step"] - 1, monkeypatch) == Finding(None, NOT_REPRODUCED)
    if case["phase"] is None:
        assert finding.located is None
        assert finding.why.startswith(case["why"])
        return
    located = finding.located
    assert located is not None, finding.why
    lines = script.read_text().splitlines()
    (marked,) = [number for number, line in enumerate(lines, 1) if case["marker"] in line]
    assert (located.phase, located.module, located.line) == (case["phase"], case["module"], marked)
    assert located.file == str(script)
    assert located.operation in case["operations"]
    assert located.reached.startswith(case["reached"])


def test_the_zoo_lists_every_script() -> None:
    assert sorted(case["script"] for case in CASES) == sorted(path.name for path in ZOO.glob("*.py"))


@pytest.mark.parametrize("begins_inside", [False, True])
def test_the_anomaly_mode_of_the_script_is_its_own_where_blocks_overlap(begins_inside: bool) -> None:
    tracer = OperationTracer(parameters={}, method="")
    block = torch.autograd.set_detect_anomaly
    if begins_inside:
        with block(True):
            tracer.__enter__()
            assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_enabled()
        tracer.__exit__(None, None, None)
    else:
        tracer.__enter__()
        assert not torch.is_anomaly_enabled()
        with block(True):
            tracer.__exit__(None, None, None)
            assert (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()) == (True, True)
    assert not torch.is_anomaly_enabled()
