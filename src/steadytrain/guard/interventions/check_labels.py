from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from steadytrain.capture.step.run_stopped import RunStopped
from steadytrain.core.incident import Action
from steadytrain.guard.intervention import Intervention, Numbers

if TYPE_CHECKING:
    from steadytrain.guard.live import Live

IGNORED = -100
"""The default of torch's ``ignore_index``, the fifth argument of these losses."""

OUTSIDE = "the label {label} in row {row} of the targets{sample} is outside [0, {classes})"


@final
@dataclass
class CheckLabels(Intervention):
    """Stop the run before a loss gets a label outside of its classes.

    Otherwise the loss raises an IndexError on the CPU, and on a GPU the process loses its device. The check looks at
    ``cross_entropy`` and ``nll_loss`` of torch; their ``ignore_index`` is no label. The run ends with status 70, and
    the line names the row, with its index in the data set where that is known.

    Args:
        accelerators: 1 also checks labels on a GPU, which waits for it in each step.
    """

    accelerators: int = 0
    replayed: ClassVar[bool] = True
    _live: Live | None = None

    def check(self) -> None:
        if self.accelerators not in (0, 1):
            raise ValueError(f"accelerators {self.accelerators}: must be 0 or 1")

    def apply(self, live: Live) -> tuple[Numbers, Numbers]:
        from torch.nn import functional

        self._live = live
        live.functions.replace((functional.cross_entropy, functional.nll_loss), self._checked)
        return {}, {}

    def functions_ended(self, live: Live) -> None:
        self.apply(live)

    def revert(self, live: Live) -> None:
        self._live = None

    def _checked(self, original: Any, logits: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        live = self._live
        if live is not None:
            wrong = None
            with live.run.guard.part("checking labels"):
                wrong = self._wrong(
                    live, logits, target, kwargs.get("ignore_index", args[2] if len(args) > 2 else IGNORED)
                )
            if wrong is not None:
                raise self._stop(live, wrong)
        return original(logits, target, *args, **kwargs)

    def _wrong(self, live: Live, logits: Any, target: Any, ignored: int) -> str | None:
        """What is wrong with the labels; None if nothing is, or if they are not looked at."""
        from torch import Tensor

        if not isinstance(logits, Tensor) or not isinstance(target, Tensor) or target.is_floating_point():
            return None
        if not target.numel() or (target.device.type != "cpu" and not self.accelerators):
            return None
        classes = logits.shape[1] if logits.dim() > 1 else logits.shape[0]
        outside = ((target < 0) | (target >= classes)) & (target != ignored)
        if not bool(outside.any()):
            return None
        place = tuple(int(one) for one in outside.nonzero()[0]) or (0,)
        label = int(target[place] if target.dim() else target)
        rows = len(target) if target.dim() else 1
        return OUTSIDE.format(label=label, row=place[0], sample=_sample(live, place[0], rows), classes=classes)

    def _stop(self, live: Live, why: str) -> RunStopped:
        run, step = live.run, live.step + 1
        stopped = RunStopped(f"steadytrain stopped the run before the loss of step {step}: {why}")
        run.stopped = stopped
        run.tell(f"STOPPED before the loss of step {step}: {why}")
        if live.stream is not None:
            action = Action(step, run.settings.policy, "stopped", why, "check-labels", {}, {})
            run.recorder.act(live.stream, action)
        return stopped


def _sample(live: Live, row: int, rows: int) -> str:
    """The data set's index of that row, if the batch of the running step has whole shares of the targets."""
    samples = live.run.draws.samples_of(live.run.seen.micro_batches)
    if not samples or rows % len(samples[-1].indices):
        return ""
    return f", {samples[-1].named(row // (rows // len(samples[-1].indices)))},"
