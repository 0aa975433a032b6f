"""A constant seed in the function that puts batches together, read in the source, and seeds that are meant."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "an object": """
        class Negatives:
            def __init__(self, seed=7):
                self.seed = seed
            def __call__(self, rows):
                pairs = torch.stack(rows)
                gen = torch.Generator().manual_seed(self.seed)
                return pairs, torch.randint(0, ITEMS, (len(pairs), 5), generator=gen)

        loader = DataLoader(data, 32, collate_fn=Negatives())
    """,
    "a function with the global generator": """
        def collate(rows):
            torch.manual_seed(0)
            x = torch.stack(rows)
            return x + 0.1 * torch.randn_like(x), x

        train_loader = DataLoader(data, 32, collate_fn=collate)
    """,
    "places for each row": """
        def collate(rows):
            rng = random.Random(3)
            starts = [rng.randrange(len(row) - 64) for row in rows]
            return torch.stack([row[at : at + 64] for row, at in zip(rows, starts)])

        loader = DataLoader(data, 32, collate_fn=collate)
    """,
    "a method and a function that it calls": """
        class Masked:
            def mask(self, ids):
                rng = np.random.default_rng(11)
                return torch.from_numpy(rng.random(ids.shape) < 0.15)
            def collate(self, rows):
                ids = torch.stack(rows)
                return ids, self.mask(ids)
            def loader(self, data):
                return DataLoader(data, 32, collate_fn=self.collate)
    """,
    "partial": """
        def crop(rows, size, seed):
            rng = np.random.RandomState(seed)
            at = rng.choice(100, size)
            return torch.stack(rows)[:, at]

        loader = DataLoader(data, 32, collate_fn=functools.partial(crop, size=8, seed=1))
    """,
    "a generator in the draw": """
        def collate(rows):
            x = torch.stack(rows)
            return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(5))]

        loader = DataLoader(data, 32, collate_fn=lambda rows: collate(rows))
    """,
}
HEALTHY = {
    "of held-out data": """
        def collate(rows):
            torch.manual_seed(0)
            x = torch.stack(rows)
            return x + 0.1 * torch.randn_like(x), x

        val_loader = DataLoader(data, 32, collate_fn=collate)
        for batch in DataLoader(test_set, 32, collate_fn=collate):
            pass
    """,
    "a generator that goes on": """
        class Negatives:
            def __init__(self, seed=7):
                self.gen = torch.Generator().manual_seed(seed)
            def __call__(self, rows):
                return torch.randint(0, ITEMS, (len(rows), 5), generator=self.gen)

        loader = DataLoader(data, 32, collate_fn=Negatives())
    """,
    "a seed of the batch": """
        class Negatives:
            def __init__(self):
                self.count = 0
            def __call__(self, rows):
                self.count += 1
                gen = torch.Generator().manual_seed(self.count)
                return torch.randint(0, ITEMS, (len(rows), 5), generator=gen)

        loader = DataLoader(data, 32, collate_fn=Negatives())
    """,
    "a seed of its rows": """
        def collate(rows):
            ids = [row[0] for row in rows]
            rng = np.random.default_rng(ids[0])
            return torch.stack([row[1] for row in rows])[rng.permutation(len(rows))]

        loader = DataLoader(data, 32, collate_fn=collate)
    """,
    "if asked for": """
        class Noisy:
            def __init__(self, seed=None):
                self.seed = seed
            def __call__(self, rows):
                gen = None if self.seed is None else torch.Generator().manual_seed(self.seed)
                return torch.stack(rows) + torch.randn(len(rows), 8, generator=gen)

        loader = DataLoader(data, 32, collate_fn=Noisy())
    """,
    "a fixed projection": """
        def collate(rows):
            x = torch.stack(rows)
            gen = torch.Generator().manual_seed(0)
            return torch.cos(x @ torch.randn(8, 64, generator=gen)) + 0.01 * torch.randn(len(x), 64)

        loader = DataLoader(data, 32, collate_fn=collate)
    """,
    "no collate function": """
        def split(rows):
            rng = random.Random(3)
            rng.shuffle(rows)
            return rows

        loader = DataLoader(split(rows), 32)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "batch-seed"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_the_same_numbers_in_each_batch(source: str) -> None:
    assert found(source) == ["batch-seed"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
