"""How the tests of the tracer run a function under it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.core.incident import Finding, Located  # noqa: E402
from steadytrain.tracing.tracer import OperationTracer  # noqa: E402

INF, NAN = float("inf"), float("nan")


@pytest.fixture(autouse=True)
def _one_thread_and_nothing_left_behind() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    yield
    torch.set_num_threads(threads)
    assert not torch.is_anomaly_enabled()
    assert torch._C._len_torch_dispatch_stack() == 0


def values(*numbers: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor([float(number) for number in numbers]))


def tracer_of(model: nn.Module | None = None, **parameters: torch.Tensor) -> OperationTracer:
    modules = {} if model is None else {module: path for path, module in model.named_modules()}
    named = {} if model is None else dict(model.named_parameters())
    return OperationTracer(modules=modules, parameters={**named, **parameters}, method="test")


def trace(forward: Callable[[], torch.Tensor], model: nn.Module | None = None, **parameters: torch.Tensor) -> Finding:
    """Run forward and backward once under the tracer."""
    tracer = tracer_of(model, **parameters)
    with tracer:
        loss = forward()
        tracer.mark_loss(loss)
        loss.backward()
    finding = tracer.finding()
    assert tracer.trouble is None
    return finding


def blamed(finding: Finding) -> Located:
    assert finding.located is not None, finding.why
    file = finding.located.file
    assert file is None or Path(file).parent == Path(__file__).parent
    return finding.located
