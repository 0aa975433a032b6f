"""What a preflight keeps of each of the script's own steps."""

from __future__ import annotations

from dataclasses import dataclass

from steadytrain.capture.step.optimizer_streams import Stream
from steadytrain.capture.step.script_frames import variable_of


@dataclass(frozen=True, eq=False)
class StepFacts:
    """Measurements of one of the script's own steps.

    ``gradient_norm`` is before clipping; ``applied_norm`` is that of the optimizer's gradients, None if unknown.
    ``clips`` counts the calls of ``clip_grad_norm_``. The last one had ``clip_limit`` and saw ``clip_total`` (None: no
    gradients). ``carried_over``: the gradients of the update before were not cleared (None: there was none).
    ``stream`` and ``optimizer`` say which optimizer made the step: by the watch, and by the script's own name.
    """

    step: int
    loss: float | None
    learning_rate: float | None
    gradient_norm: float
    micro_batches: int
    applied_norm: float | None = None
    clips: int = 0
    clip_limit: float | None = None
    clip_total: float | None = None
    carried_over: bool | None = None
    stream: str = "main"
    optimizer: str = ""


def optimizer_of(stream: Stream) -> str:
    """The script's own name of the first optimizer of ``stream``, or its class."""
    first = stream.optimizers[0] if stream.optimizers else None
    return (variable_of(first) or type(first).__name__) if first is not None else ""
