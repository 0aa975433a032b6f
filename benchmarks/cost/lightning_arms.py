"""The same steps in Lightning's loop: without callbacks, and with those that look at gradients.

Lightning has its own loop, so its callbacks are compared with that loop and not with the bare one.
"""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning as L  # noqa: N812 (the name that everybody uses)
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import grad_norm

from cost.arms import Attached, Subject
from cost.case import LOOK_EVERY
from cost.process import Turns

CLIP_NORM = 1.0


class Module(L.LightningModule):
    """The subject as Lightning wants it."""

    def __init__(self, subject: Subject, turns: Turns) -> None:
        super().__init__()
        self.gpt = subject.model
        self.subject, self.turns = subject, turns

    def training_step(self, tokens: Any, index: int) -> Any:
        return self.gpt(tokens[:, :-1], tokens[:, 1:])

    def configure_optimizers(self) -> Any:
        return self.subject.optimizer

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        self.turns.loss = float(outputs["loss"])


class LoggedModule(Module):
    """With the gradient norms that Lightning's guide to debugging shows."""

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.log_dict(grad_norm(self, norm_type=2))


def bare(subject: Subject) -> Attached:
    return Attached(loop=lambda turns: _fit(subject, Module(subject, turns), logger=False, callbacks=[]))


def callbacks(subject: Subject) -> Attached:
    def loop(turns: Turns) -> None:
        logger = CSVLogger(str(subject.folder))
        _fit(subject, LoggedModule(subject, turns), logger=logger, callbacks=[LearningRateMonitor("step")])

    return Attached(loop=loop)


def _fit(subject: Subject, module: Module, *, logger: Any, callbacks: list[Any]) -> None:
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    trainer = L.Trainer(
        accelerator="cpu" if subject.case.device == "cpu" else "gpu",
        devices=1,
        max_epochs=1,
        logger=logger,
        callbacks=callbacks,
        log_every_n_steps=LOOK_EVERY,
        gradient_clip_val=CLIP_NORM if subject.case.clip else None,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module, module.turns)
