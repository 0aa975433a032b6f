"""Compiled graphs by backend: a backend that does one operation wrongly is named with that operation and its line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402 (torch is optional for an install of steadytrain)

from steadytrain.capture.incident.context import IncidentContext  # noqa: E402
from steadytrain.capture.step.input_recorder import BufferKeeper, record_call  # noqa: E402
from steadytrain.capture.step.loss import loss_term  # noqa: E402
from steadytrain.capture.step.script_frames import loop_lines, user_frames  # noqa: E402
from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.storage.step_look import Backends  # noqa: E402
from steadytrain.tracing.backend_comparison import compare_backends  # noqa: E402
from steadytrain.tracing.compiled_graphs import intercept  # noqa: E402

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(autouse=True)
def _graphs_are_followed() -> Iterator[None]:
    put_back = intercept()
    yield
    put_back()
    torch._dynamo.reset()


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 1)
        self.drop = nn.Dropout(0.2)

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = torch.tanh(self.first(inputs))
        gates = torch.exp(hidden * 0.5)
        return self.last(self.drop(hidden * gates))


class TimesBroken(torch.autograd.Function):
    """exp with a gradient of NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return torch.exp(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * float("nan")


def nan_forward(x: Tensor) -> Tensor:
    return torch.exp(x) * float("nan")


def nan_backward(x: Tensor) -> Tensor:
    return TimesBroken.apply(x)  # type: ignore[no-any-return]


def slightly_wrong(x: Tensor) -> Tensor:
    return torch.exp(x) * 1.001


def within_rounding(x: Tensor) -> Tensor:
    return torch.exp2(x * 1.4426950408889634)


def replacing_exp(by: Any) -> Any:
    """A backend that runs the graph as it is but for ``torch.exp``."""

    def wrong(module: torch.fx.GraphModule, inputs: Any) -> Any:
        for node in module.graph.nodes:
            if node.target is torch.exp:
                node.target = by
        module.recompile()
        return module.forward

    return wrong


def compared(by: Any) -> tuple[Backends | None, Finding | None]:
    torch.manual_seed(0)
    plain = Net()
    model = torch.compile(plain, backend=replacing_exp(by))
    inputs = torch.randn(6, 4)
    calls = []
    buffers = BufferKeeper()

    def note(module: nn.Module, args: Any, kwargs: Any) -> None:
        if not calls:
            buffers.keep(module)
            calls.append(record_call(module, args, kwargs, None))

    handle = model.register_forward_pre_hook(note, with_kwargs=True)
    output = model(inputs)
    loss = output.square().mean()
    term, here = loss_term(loss), user_frames()
    assert here
    loss.backward()
    handle.remove()
    incident_context = IncidentContext(
        step=1,
        micro_batches=calls,
        losses=[term],
        loss_finite=True,
        parameters=dict(plain.named_parameters()),
        roots=[model],
        buffers=buffers,
        fetched=(),
        loop=loop_lines(calls[0].frames, tuple(line_of_backward(here))),
        alone=True,
        no_lap=None,
    )
    return compare_backends(incident_context)


def line_of_backward(frames: Any) -> Any:
    """The frames as they are two lines further down, where ``loss.backward()`` stands."""
    first, *rest = frames
    return [type(first)(first.frame_id, first.code, first.line + 2), *rest]


def table_of(by: Any) -> tuple[Backends, Finding | None]:
    backends, finding = compared(by)
    assert backends is not None
    assert [row.backend for row in backends.rows][:2] == ["eager", "aot_eager"]
    assert all(row.failed is None for row in backends.rows)
    eager, aot, _ = backends.rows
    assert eager.loss == pytest.approx(aot.loss)
    assert aot.first_difference is None
    return backends, finding


def test_a_nan_that_only_the_backend_makes_is_named_with_its_line() -> None:
    backends, finding = table_of(nan_forward)
    assert backends.compiled_only
    assert backends.to_blame == backends.rows[2].backend
    assert finding is not None
    assert finding.why.startswith("compiled-only: ")
    located = finding.located
    assert located is not None
    assert (located.operation, located.phase, located.produced) == ("torch.exp", "forward", "nan")
    assert located.code == "gates = torch.exp(hidden * 0.5)"


def test_a_nan_in_the_gradient_alone_is_found_in_backward() -> None:
    backends, finding = table_of(nan_backward)
    assert backends.compiled_only
    assert "gradient of first" in (backends.rows[2].first_difference or "")
    assert finding is not None
    assert finding.located is not None
    assert (finding.located.phase, finding.located.code) == ("backward", "gates = torch.exp(hidden * 0.5)")


def test_a_wrong_but_finite_result_is_told_and_not_called_compiled_only() -> None:
    backends, finding = table_of(slightly_wrong)
    assert (backends.compiled_only, finding) == (False, None)
    assert backends.to_blame is not None
    assert "off by" in (backends.rows[2].first_difference or "")


def test_another_rounding_is_nobodys_fault() -> None:
    backends, finding = table_of(within_rounding)
    assert (backends.to_blame, backends.compiled_only, finding) == (None, False, None)


def test_nothing_compiled_has_no_table() -> None:
    incident_context = IncidentContext(1, [], [], True, {}, [], BufferKeeper(), (), None, True, None)
    assert compare_backends(incident_context) == (None, None)
