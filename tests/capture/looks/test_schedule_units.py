"""Schedules as long as the number of epochs that are stepped for each batch, read in the source."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a module": """
        sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
        for epoch in range(epochs):
            for x, y in loader:
                loss.backward()
                opt.step()
                sched.step()
        """,
    "a trainer, positional": """
        class Trainer:
            def __init__(self, num_epochs):
                self.sched = CosineAnnealingLR(self.opt, num_epochs)
            def fit(self):
                for epoch in range(1, self.num_epochs + 1):
                    for batch in self.loader:
                        self.opt.step()
                        self.sched.step()
        """,
    "a progress bar, of arguments": """
        scheduler = lr_scheduler.LinearLR(opt, 1.0, 0.0, total_iters=args.epochs)
        for epoch in tqdm(range(args.epochs)):
            for step, batch in enumerate(loader):
                with autocast():
                    loss = f(batch)
                scheduler.step()
        """,
}
HEALTHY = {
    "once an epoch": """
        sched = CosineAnnealingLR(opt, T_max=epochs)
        for epoch in range(epochs):
            for x, y in loader:
                opt.step()
            sched.step()
        """,
    "of all batches": """
        sched = CosineAnnealingLR(opt, T_max=epochs * len(loader))
        for epoch in range(epochs):
            for x, y in loader:
                opt.step()
                sched.step()
        """,
    "at the end of the epoch, within the loop": """
        sched = CosineAnnealingLR(opt, T_max=epochs)
        for epoch in range(epochs):
            for i, (x, y) in enumerate(loader):
                opt.step()
                if i == len(loader) - 1:
                    sched.step()
        """,
    "cycles of another length": """
        sched = CosineAnnealingLR(opt, T_max=cycle)
        for epoch in range(epochs):
            for x, y in loader:
                opt.step()
                sched.step()
        """,
    "folds around epochs": """
        for fold in range(folds):
            sched = CosineAnnealingLR(opt, T_max=epochs)
            for epoch in range(epochs):
                for x, y in loader:
                    opt.step()
                sched.step()
        """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "epochs-per-batch"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_its_line_is_found(source: str) -> None:
    assert found(source)


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_quiet(source: str) -> None:
    assert not found(source)
