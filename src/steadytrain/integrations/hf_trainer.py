"""The Hugging Face Trainer, and libraries built on it (TRL, PEFT).

::

    from steadytrain.integrations.hf_trainer import SteadyTrainCallback

    trainer = Trainer(..., callbacks=[SteadyTrainCallback(policy="stop")])

``steadytrain run train.py`` watches a Trainer without this callback. With it the run also knows the Trainer's
arguments, its step numbers and when it evaluated. Under ``steadytrain run`` the callback borrows that watch.

The Trainer has no event for a failed training. So importing this module wraps ``Trainer.train`` once; without our
callback the wrapper only calls through.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, final

from transformers import Trainer, TrainerCallback
from transformers.trainer_callback import ExportableState

from steadytrain.attach import Options
from steadytrain.attach.entry_points import guest_callbacks
from steadytrain.core.signatures import takes_options
from steadytrain.integrations import Integration
from steadytrain.integrations.fits import Fit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from steadytrain.attach import Watch
    from steadytrain.attach.options import OptionsGiven

FILTER_NOTE = (
    "logging_nan_inf_filter is on: the Trainer's own log shows an earlier mean instead of a NaN or Inf loss; "
    "the loss recorded here is the real one"
)


@final
class HfTrainer(Integration):
    """Hugging Face's Trainer, and libraries built on it: TRL, PEFT."""

    requires: ClassVar[str] = "transformers"
    use: ClassVar[str] = "SteadyTrainCallback; Trainer(..., callbacks=[SteadyTrainCallback()])"


@guest_callbacks("following the trainer")
class SteadyTrainCallback(TrainerCallback, ExportableState):  # type: ignore[misc, unused-ignore]
    """Watch each training from ``on_train_begin`` to its end, also if it ends with an exception.

    Args:
        options: as for :func:`steadytrain.watch`, the fields of :class:`steadytrain.attach.Options`.

    Raises:
        UsageError: an option is of the wrong kind.
    """

    @takes_options(Options)
    def __init__(self, **options: Unpack[OptionsGiven]) -> None:
        self._fit = Fit("transformers.Trainer", options)

    @property
    def watch(self) -> Watch | None:
        """The open watch, None between trainings."""
        return self._fit.watch

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._fit.begin(kwargs["model"], kwargs.get("optimizer"))
        notes = (FILTER_NOTE,) if getattr(args, "logging_nan_inf_filter", False) else ()
        self._fit.describe(
            args.to_dict(), global_step=int(state.global_step), planned_steps=state.max_steps, notes=notes
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._fit.stepped(int(state.global_step))

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._fit.evaluated(int(state.global_step), kwargs.get("metrics") or {})

    def state(self) -> dict[str, Any]:
        """The Trainer saves it in ``trainer_state.json`` of each checkpoint: the ledger so far."""
        return {"args": self._fit.options, "attributes": {"ledger": self._fit.ledger}}

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._fit.end()

    def training_failed(self, error: BaseException) -> None:
        """End the watch of a training that failed with ``error``."""
        self._fit.end(error)


def _follow_failures() -> None:
    original = Trainer.train
    if hasattr(original, "_tells_steadytrain"):
        return

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return original(self, *args, **kwargs)
        except BaseException as error:
            for callback in self.callback_handler.callbacks:
                if isinstance(callback, SteadyTrainCallback):
                    callback.training_failed(error)
            raise

    train._tells_steadytrain = True  # type: ignore[attr-defined]
    Trainer.train = train  # type: ignore[method-assign, unused-ignore]


_follow_failures()
