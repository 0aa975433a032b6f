"""Accelerate: loops that prepare their model and optimizer with an ``Accelerator``.

::

    from steadytrain.integrations.accelerate import watch

    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    with watch(accelerator, policy="stop"):
        ...

``steadytrain run`` and :func:`steadytrain.watch` also watch such a loop. This integration takes models and optimizers
from the accelerator and records its settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, final

from steadytrain import attach
from steadytrain.core.errors import UsageError
from steadytrain.core.signatures import takes_options
from steadytrain.core.switch import is_off
from steadytrain.integrations import Integration

if TYPE_CHECKING:
    from accelerate import Accelerator
    from typing_extensions import Unpack

    from steadytrain.attach import Watch
    from steadytrain.attach.options import OptionsGiven


@final
class Accelerate(Integration):
    """Accelerate: a watch around your own loop, after ``prepare``."""

    requires: ClassVar[str] = "accelerate"
    use: ClassVar[str] = "watch; with watch(accelerator): ..."


@takes_options(attach.Options)
def watch(accelerator: Accelerator, **options: Unpack[OptionsGiven]) -> Watch:
    """Watch the training of what ``accelerator`` has prepared.

    Args:
        options: the fields of :class:`steadytrain.attach.Options`:

    Raises:
        UsageError: nothing is prepared yet, or an option is of the wrong kind.
    """
    if is_off():
        return attach.watch(**options)
    models, optimizers = list(accelerator._models), list(accelerator._optimizers)
    if not models or not optimizers:
        missing = "model" if not models else "optimizer"
        raise UsageError(f"watch: this accelerator has prepared no {missing}; call it after accelerator.prepare(...)")
    begun = attach.watch(models[0], optimizers[0].optimizer, **options)
    begun.set_fact(
        "accelerate",
        {
            "mixed_precision": str(accelerator.mixed_precision),
            "gradient_accumulation_steps": accelerator.gradient_accumulation_steps,
            "distributed_type": str(accelerator.distributed_type),
            "num_processes": accelerator.num_processes,
            "models": [type(accelerator.unwrap_model(model)).__name__ for model in models],
            "optimizers": [type(optimizer.optimizer).__name__ for optimizer in optimizers],
        },
    )
    return begun
