"""Lightning's Trainer, automatic and manual optimization.

::

    from steadytrain.integrations.lightning import SteadyTrainCallback

    trainer = lightning.Trainer(..., callbacks=[SteadyTrainCallback(policy="stop")])

``steadytrain run train.py`` watches a Trainer without this callback. With it the run also knows the trainer's settings,
its step numbers and when it validated, and the checkpoints of a run that steadytrain touched hold the ledger. Under
``steadytrain run`` the callback borrows that watch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, final

try:
    from lightning.pytorch import Callback
except ImportError:  # the package's older name
    from pytorch_lightning import Callback

from steadytrain.attach import Options
from steadytrain.attach.entry_points import guest_callbacks
from steadytrain.core.signatures import takes_options
from steadytrain.integrations import Integration
from steadytrain.integrations.fits import Fit

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from steadytrain.attach import Watch
    from steadytrain.attach.options import OptionsGiven

SETTINGS = (
    *("max_epochs", "max_steps", "precision", "accumulate_grad_batches", "gradient_clip_val"),
    *("gradient_clip_algorithm", "num_devices", "num_nodes", "world_size", "val_check_interval"),
)
"""Attributes of a trainer that describe how it trains."""


@final
class Lightning(Integration):
    """Lightning's Trainer, automatic and manual optimization."""

    requires: ClassVar[str] = "lightning"
    use: ClassVar[str] = "SteadyTrainCallback; Trainer(..., callbacks=[SteadyTrainCallback()])"


@guest_callbacks("following the trainer")
class SteadyTrainCallback(Callback):  # type: ignore[misc, unused-ignore]
    """Watch each fit from ``on_fit_start`` to ``teardown`` or ``on_exception``.

    Args:
        options: as for :func:`steadytrain.watch`, the fields of :class:`steadytrain.attach.Options`.

    Raises:
        UsageError: an option is of the wrong kind.
    """

    @takes_options(Options)
    def __init__(self, **options: Unpack[OptionsGiven]) -> None:
        super().__init__()
        self._fit = Fit("lightning.Trainer", options)

    @property
    def watch(self) -> Watch | None:
        """The open watch, None between fits."""
        return self._fit.watch

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        optimizers = trainer.optimizers
        self._fit.begin(pl_module, optimizers[0] if optimizers else None)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        settings = {name: getattr(trainer, name, None) for name in SETTINGS}
        settings["strategy"] = type(trainer.strategy).__name__
        settings["automatic_optimization"] = pl_module.automatic_optimization
        settings["hparams"] = dict(getattr(pl_module, "hparams", {}))
        # With manual optimization the module chooses how often it steps.
        planned = trainer.estimated_stepping_batches if pl_module.automatic_optimization else None
        self._fit.describe(settings, global_step=trainer.global_step, planned_steps=planned)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *args: Any, **kwargs: Any) -> None:
        self._fit.stepped(trainer.global_step)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if not trainer.sanity_checking:
            self._fit.evaluated(trainer.global_step, trainer.callback_metrics)

    def state_dict(self) -> dict[str, Any]:
        """Lightning saves it in the checkpoint: the ledger of a run that steadytrain touched."""
        ledger = self._fit.ledger
        return {"ledger": ledger} if ledger else {}

    def teardown(self, trainer: Any, pl_module: Any, stage: str) -> None:
        self._fit.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._fit.end(exception)
