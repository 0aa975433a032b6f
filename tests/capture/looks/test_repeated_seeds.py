"""Seeds that are set in each step, read in the source, and seeds that are not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "in the loop": """
        for x, y in loader:
            torch.manual_seed(0)
            noise = torch.randn_like(x)
            loss = step(x + noise, y)
            loss.backward()
    """,
    "a generator in a function": """
        def add_noise(x):
            g = torch.Generator().manual_seed(SEED)
            return x + torch.randn(x.shape, generator=g)
        for x, y in loader:
            loss = criterion(model(add_noise(x)), y)
            loss.backward()
    """,
    "of numpy, in a function of the step": """
        def augment(x):
            rng = np.random.default_rng(1234)
            return x + rng.normal(size=x.shape)
        def train_step(x):
            loss = model(augment(x)).mean()
            loss.backward()
        def train():
            for epoch in range(3):
                for x in loader:
                    train_step(x)
    """,
    "in a method of the trainer": """
        class Trainer:
            def noise(self, x):
                g = torch.Generator().manual_seed(self.seed)
                return torch.randn(x.shape, generator=g)
            def fit(self):
                for x in self.loader:
                    self.model(x + self.noise(x)).mean().backward()
    """,
    "the module's generator": """
        while step < total:
            np.random.seed(args.seed)
            rows = np.random.choice(len(data), 32)
            loss = model(data[rows]).mean()
            loss.backward()
            step += 1
    """,
}
HEALTHY = {
    "before the loop": """
        torch.manual_seed(0)
        for x in loader:
            model(x).mean().backward()
    """,
    "by the step": """
        for step in range(100):
            torch.manual_seed(seed + step)
            model(torch.randn(8)).mean().backward()
    """,
    "by a number that the loop counts": """
        while True:
            calls += 1
            g = torch.Generator().manual_seed(calls)
            model(torch.randn(8, generator=g)).mean().backward()
    """,
    "one for each trial": """
        for trial in range(3):
            torch.manual_seed(0)
            for x in loader:
                model(x).mean().backward()
    """,
    "pictures now and then": """
        for step, x in enumerate(loader):
            model(x).mean().backward()
            if step % 100 == 0:
                g = torch.Generator().manual_seed(0)
                show(torch.randn(8, generator=g))
    """,
    "an evaluation in each step": """
        def evaluate(model):
            g = torch.Generator().manual_seed(0)
            return model(torch.randn(8, generator=g))
        for x in loader:
            model(x).mean().backward()
            evaluate(model)
    """,
    "a generator without a seed": """
        for x in loader:
            rng = np.random.default_rng()
            model(x + rng.normal(size=8)).mean().backward()
    """,
    "a seed that is given": """
        def noise(x, seed):
            g = torch.Generator().manual_seed(seed)
            return torch.randn(x.shape, generator=g)
        for step, x in enumerate(loader):
            model(x + noise(x, step)).mean().backward()
    """,
    "a method of another object with the name of a function": """
        def parameters():
            g = torch.Generator().manual_seed(0)
            return [torch.randn(3, generator=g)]
        for x in loader:
            model(x).mean().backward()
            clip(model.parameters())
    """,
    "by a step that another method counts": """
        class Trainer:
            def __init__(self):
                self.step = 0
            def batch(self):
                g = torch.Generator().manual_seed(1000 + self.step)
                return self.x[torch.randint(0, 100, (8,), generator=g)]
            def advance(self):
                self.step += 1
            def fit(self):
                while True:
                    self.model(self.batch()).mean().backward()
                    self.advance()
    """,
    "a constant of the task beside other draws": """
        def strings(n, gen):
            follow = torch.randperm(26, generator=torch.Generator().manual_seed(12))
            return follow[torch.randint(0, 26, (n,), generator=gen)]
        for step in range(100):
            model(strings(8, gen)).mean().backward()
    """,
    "a loop over trainings in a function": """
        def train(model):
            for x in loader:
                model(x).mean().backward()
        for width in widths:
            torch.manual_seed(0)
            model = Net(width)
            train(model)
    """,
    "a loop that does not train": """
        for name in names:
            torch.manual_seed(0)
            models[name] = Net(torch.randn(3))
        for x in loader:
            model(x).mean().backward()
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "repeated-seed"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_the_same_seed_in_every_step(source: str) -> None:
    assert found(source) == ["repeated-seed"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
