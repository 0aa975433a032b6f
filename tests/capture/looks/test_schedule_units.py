"""Schedules that count in epochs and are stepped for each batch, and the other way round, read in the source."""

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


OF_UPDATES = {
    "a cosine of all batches": """
        sched = CosineAnnealingLR(opt, T_max=epochs * len(loader))
        for epoch in range(epochs):
            for x, y in loader:
                opt.step()
            sched.step()
        """,
    "the script's own warm-up": """
        scheduler = warmup_then_decay(opt, cfg["warmup"], cfg["epochs"] * len(train))
        for epoch in range(cfg["epochs"]):
            for step, batch in enumerate(train):
                opt.step()
            if epoch > 0:
                scheduler.step()
        """,
    "a name for the product": """
        steps_per_epoch = len(loader)
        total_steps = steps_per_epoch * args.num_epochs
        lr_scheduler = get_linear_schedule_with_warmup(opt, 100, total_steps)
        for epoch in range(args.num_epochs):
            train_one_epoch(model, loader, opt)
            lr_scheduler.step()
        """,
    "a setting for the batches, which is off": """
        sched = OneCycleLR(opt, max_lr=1e-3, total_steps=EPOCHS * len(loader) // ACCUMULATE)
        for epoch in range(EPOCHS):
            for x, y in loader:
                opt.step()
                if PER_BATCH:
                    sched.step()
            if not PER_BATCH:
                sched.step()
        """,
}
OF_UPDATES["batches by hand"] = """
        batches = len(rows) // 32
        updates = config["epochs"] * batches
        scheduler = get_cosine_schedule_with_warmup(opt, 0, num_training_steps=updates)
        for epoch in range(config["epochs"]):
            for b in range(batches):
                opt.step()
            scheduler.step()
        """
NOT_OF_UPDATES = {
    **HEALTHY,
    "of all batches, in a function": """
        sched = CosineAnnealingLR(opt, T_max=epochs * len(loader))
        def one_batch(batch):
            opt.step()
            sched.step()
        for epoch in range(epochs):
            for batch in loader:
                one_batch(batch)
        """,
    "after each accumulated update": """
        sched = CosineAnnealingLR(opt, T_max=epochs * len(loader) // 4)
        for epoch in range(epochs):
            for i, batch in enumerate(loader):
                if (i + 1) % 4 == 0:
                    opt.step()
                    sched.step()
        """,
    "a length of another kind": """
        sched = CosineAnnealingLR(opt, T_max=epochs * len(stages))
        for stage in stages:
            for batch in loader:
                opt.step()
            sched.step()
        """,
}


def found(source: str, rule: str = "epochs-per-batch") -> list[str]:
    return [one for one, _ in mistakes(textwrap.dedent(source), {}) if one == rule]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_its_line_is_found(source: str) -> None:
    assert found(source)


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_quiet(source: str) -> None:
    assert not found(source)


@pytest.mark.parametrize("source", OF_UPDATES.values(), ids=OF_UPDATES)
def test_a_length_in_updates_that_is_stepped_for_each_epoch(source: str) -> None:
    assert found(source, "updates-per-epoch")


@pytest.mark.parametrize("source", NOT_OF_UPDATES.values(), ids=NOT_OF_UPDATES)
def test_lengths_that_are_stepped_as_they_count(source: str) -> None:
    assert not found(source, "updates-per-epoch")
