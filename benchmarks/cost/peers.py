"""What others do, attached as their documentation says. Packages are imported inside the functions that need them."""

from __future__ import annotations

import os
from typing import Any

from cost.arms import Attached, Subject
from cost.case import LOOK_EVERY, RARE_EVERY


def nothing(subject: Subject) -> Attached:
    return Attached()


def norm_loop(subject: Subject) -> Attached:
    """The loop of a hundred tutorials: the norm of every gradient, one by one, and the total by hand."""

    def look(loss: Any) -> None:
        total = 0.0
        for parameter in subject.model.parameters():
            if parameter.grad is not None:
                total += parameter.grad.norm().item() ** 2

    return Attached(after_backward=look)


def detect_anomaly(subject: Subject) -> Attached:
    import warnings

    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that it is slow
        torch.autograd.set_detect_anomaly(True)
    subject.undo.callback(torch.autograd.set_detect_anomaly, False)
    return Attached()


def tensorboard(subject: Subject) -> Attached:
    """``add_histogram`` of every weight and gradient. torch's TensorBoard tutorial logs every 1,000 mini-batches."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(subject.folder))
    subject.undo.callback(writer.close)
    step = 0

    def log(loss: Any) -> None:
        nonlocal step
        step += 1
        if step % LOOK_EVERY:
            return
        writer.add_scalar("loss", loss.item(), step)
        for name, parameter in subject.model.named_parameters():
            writer.add_histogram(name, parameter, step)
            writer.add_histogram(f"{name}.grad", parameter.grad, step)

    return Attached(after_step=log)


def wandb_watch(subject: Subject) -> Attached:
    """``wandb.watch(model, log="all")``, whose ``log_freq`` is 1,000 by default, and the loss in every step."""
    os.environ |= {"WANDB_MODE": "offline", "WANDB_SILENT": "true", "WANDB_DIR": str(subject.folder)}
    import wandb

    run = wandb.init(project="benchmark", settings=wandb.Settings(x_disable_stats=True))
    subject.undo.callback(run.finish)
    wandb.watch(subject.model, log="all", log_freq=LOOK_EVERY)
    return Attached(after_step=lambda loss: run.log({"loss": loss.item()}))


def trainscope(subject: Subject) -> Attached:
    """Its quick start: ``step(loss.item())`` between backward and the update, with its default configuration."""
    from trainscope import TrainScope
    from trainscope.core.config import TrainScopeConfig

    config = TrainScopeConfig(
        run_dir=str(subject.folder),
        activation_metrics_every_n_steps=LOOK_EVERY,
        histogram_every_n_steps=RARE_EVERY,
    )
    scope = TrainScope(subject.model, subject.optimizer, config=config).attach()
    subject.undo.callback(scope.detach)
    scope._step_idx = 1  # it counts from 0, and the first step of the benchmark is 1
    return Attached(before_step=lambda loss: scope.step(loss.item()))


def stabilityguard(subject: Subject) -> Attached:
    """Its README: the optimizer wrapped, with its defaults. It would refuse steps that it takes for spikes."""
    from stabilityguard import GuardedOptimizer

    guarded = GuardedOptimizer(subject.optimizer, subject.model, log_dir=str(subject.folder), verbose=False)
    subject.undo.callback(guarded.close)
    return Attached(optimizer=guarded)
