"""A trace that begins before the model's call: what the script made is told from what the data held."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch")

from torch import Tensor, nn  # noqa: E402 (torch is optional for an install of steadytrain)
from traced_faults import NAN, tracer_of  # noqa: E402

from steadytrain.capture.incident.context import IncidentContext  # noqa: E402
from steadytrain.capture.step.input_recorder import BufferKeeper, record_call  # noqa: E402
from steadytrain.core.incident import Finding  # noqa: E402
from steadytrain.survey.nonfinite_made import NonfiniteMade  # noqa: E402
from steadytrain.tracing.input_values import same_inputs  # noqa: E402
from steadytrain.tracing.investigator import ScriptLoopRerun  # noqa: E402


def traced(data: Tensor, prepare: Callable[[Tensor], Tensor]) -> Finding:
    model = nn.Linear(4, 1)
    tracer = tracer_of(model)
    with tracer:
        batch = prepare(data)
        tracer.note_inputs({"args[0]": batch})
        loss = model(batch).sum()
        tracer.mark_loss(loss)
        loss.backward()
    assert tracer.trouble is None
    return tracer.finding()


def normalised(batch: Tensor) -> Tensor:
    return (batch - batch.mean(1, keepdim=True)) / batch.std(1, keepdim=True)


def batch_of(row: list[float]) -> Tensor:
    return torch.tensor([[1.0, 2.0, 3.0, 5.0], row])


def test_the_script_s_own_operation_before_the_model_is_the_first_bad_one() -> None:
    located = traced(batch_of([3.0] * 4), normalised).located
    assert located is not None
    assert (located.phase, located.operation, located.produced) == ("preprocessing", "aten.div.Tensor", "nan")
    assert located.code is not None
    assert "batch.std(1, keepdim=True)" in located.code


@pytest.mark.parametrize("prepare", [normalised, lambda batch: batch[:2], lambda batch: batch.log().exp()])
def test_what_the_data_held_is_the_data_s_whatever_the_script_did_with_it(prepare: Callable[[Tensor], Tensor]) -> None:
    found = traced(batch_of([1.0, NAN, 2.0, 3.0]), prepare)
    assert found.located is None
    assert found.why.startswith("the batch already holds NaN: args[0]")
    assert "no operation of the step made it" in found.why
    assert not found.is_half_traced()


def lap(data: Tensor, *, from_batch: bool) -> Finding:
    """A loop that goes round again with the recorded batch."""
    model = nn.Linear(4, 1)
    recorded = normalised(data)
    call = record_call(model, (recorded,), {}, None)
    context = IncidentContext(
        step=3,
        micro_batches=[call],
        losses=[],
        loss_finite=False,
        parameters=dict(model.named_parameters()),
        roots=[model],
        buffers=BufferKeeper(),
        fetched=[],
        loop=None,
        alone=True,
        no_lap=None,
    )
    again = ScriptLoopRerun(context, from_batch=from_batch)
    own = normalised(data)
    given = again.forward_begins(model, (own,), {})
    (args, _) = given if given is not None else ((own,), {})
    loss = model(*args).sum()
    again.backward_begins(loss)
    loss.backward()
    return again.gate()


def test_a_loop_that_runs_again_is_traced_from_its_batch_if_that_is_bad() -> None:
    located = lap(batch_of([3.0] * 4), from_batch=True).located
    assert located is not None
    assert located.phase == "preprocessing"
    half = lap(batch_of([3.0] * 4), from_batch=False)
    assert half.located is None
    assert half.is_half_traced()


def test_nan_is_the_same_value_as_nan() -> None:
    bad = torch.tensor([NAN, 1.0])
    assert same_inputs((bad,), (bad.clone(),))
    assert not same_inputs((bad,), (torch.tensor([NAN, 2.0]),))


def test_the_survey_says_whether_the_model_was_called_by_then() -> None:
    seen, zero = NonfiniteMade(), torch.zeros(1)
    for called in (False, True):
        if called:
            seen.model_called()
        seen.saw("log", (zero,), {}, torch.log(zero), "train.py:4: x", 7)
    seen.step_begins()
    seen.saw("log", (zero,), {}, torch.log(zero), "train.py:4: x", 8)
    assert [one["before_model"] for one in seen.found] == [True, False, True]
