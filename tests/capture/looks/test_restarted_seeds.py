"""Seeds of a data set that start the same numbers anew, read in the source, and others."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a lambda": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        loader = DataLoader(Crops(), 32, num_workers=4, worker_init_fn=lambda i: np.random.seed(42 + i))
        for epoch in range(9):
            train(loader)
    """,
    "a function": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        def seed_worker(worker_id):
            seed = SEED + worker_id
            np.random.seed(seed)
            random.seed(seed)
        train_loader = DataLoader(Crops(), 32, num_workers=args.workers, worker_init_fn=seed_worker)
        for epoch in range(epochs):
            train(train_loader)
    """,
}
HEALTHY = {
    "the seed of torch": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        def seed_worker(worker_id):
            np.random.seed(torch.initial_seed() % 2**32)
        loader = DataLoader(Crops(), 32, num_workers=4, worker_init_fn=seed_worker)
        for epoch in range(9):
            train(loader)
    """,
    "workers that stay": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        loader = DataLoader(
            Crops(), 32, num_workers=4, persistent_workers=True, worker_init_fn=lambda i: np.random.seed(i)
        )
        for epoch in range(9):
            train(loader)
    """,
    "no workers": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        loader = DataLoader(Crops(), 32, num_workers=0, worker_init_fn=lambda i: np.random.seed(i))
        for epoch in range(9):
            train(loader)
    """,
    "validation": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        val_loader = DataLoader(Crops(), 32, num_workers=4, worker_init_fn=lambda i: np.random.seed(i))
        for epoch in range(9):
            evaluate(val_loader)
    """,
    "nothing is drawn": """
        class Rows(Dataset):
            def __getitem__(self, i):
                return self.rows[i]
        loader = DataLoader(Rows(), 32, num_workers=4, worker_init_fn=lambda i: np.random.seed(i))
        for epoch in range(9):
            train(loader)
    """,
    "another generator": """
        class Rows(Dataset):
            def __getitem__(self, i):
                return self.rows[i] + torch.randn(8)
        loader = DataLoader(Rows(), 32, num_workers=4, worker_init_fn=lambda i: np.random.seed(i))
        for epoch in range(9):
            train(loader)
    """,
    "by the epoch": """
        class Crops(Dataset):
            def __getitem__(self, i):
                at = np.random.randint(8)
                return self.images[i, at:at + 24]

        for epoch in range(9):
            loader = DataLoader(Crops(), 32, num_workers=4, worker_init_fn=lambda i: np.random.seed(9 * epoch + i))
            train(loader)
    """,
}


ROWS_SICK = {
    "a constant": """
        class Crops(Dataset):
            def __getitem__(self, index):
                np.random.seed(42)
                at = np.random.randint(8)
                return self.images[index, at : at + 24]
    """,
    "an attribute that stays": """
        class Crops(Dataset):
            def __init__(self, seed):
                self.seed = seed
            def __getitem__(self, index):
                random.seed(self.seed)
                return self.images[index] if random.random() < 0.5 else self.images[index].flip(-1)
    """,
}
ROWS_HEALTHY = {
    "by the index": """
        class Crops(Dataset):
            def __getitem__(self, index):
                np.random.seed(42 + index)
                return self.images[index] + np.random.randn(8)
    """,
    "one draw for image and mask": """
        class Pairs(Dataset):
            def __getitem__(self, index):
                seed = np.random.randint(2**31)
                random.seed(seed)
                image = self.flip(self.images[index])
                random.seed(seed)
                return image, self.flip(self.masks[index])
            def flip(self, x):
                return x if random.random() < 0.5 else x.flip(-1)
    """,
    "validation": """
        class ValidationCrops(Dataset):
            def __getitem__(self, index):
                np.random.seed(42)
                return self.images[index, np.random.randint(8) :]
    """,
    "if asked for": """
        class Crops(Dataset):
            def __getitem__(self, index):
                if self.fixed:
                    np.random.seed(42)
                return self.images[index, np.random.randint(8) :]
    """,
    "of the epoch": """
        class Crops(Dataset):
            def set_epoch(self, epoch):
                self.seed = epoch
            def __getitem__(self, index):
                np.random.seed(self.seed)
                return self.images[index, np.random.randint(8) :]
    """,
}


def found(source: str) -> list[str]:
    rules = ("worker-seed", "row-seed")
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule in rules]


@pytest.mark.parametrize("source", ROWS_SICK.values(), ids=ROWS_SICK)
def test_the_same_numbers_for_each_row(source: str) -> None:
    assert found(source) == ["row-seed"]


@pytest.mark.parametrize("source", ROWS_HEALTHY.values(), ids=ROWS_HEALTHY)
def test_seeds_of_a_row_or_an_epoch(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_the_same_numbers_in_each_epoch(source: str) -> None:
    assert found(source) == ["worker-seed"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
