"""Optimizers that are made anew while one model trains, read in the source, and those of several trainings."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "in the loop": """
        for x, y in loader:
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            loss = criterion(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    """,
    "in the function of a step": """
        def train_step(model, x, y):
            opt = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            loss = criterion(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        for epoch in range(9):
            for x, y in loader:
                train_step(model, x, y)
    """,
}
HEALTHY = {
    "before the loop": """
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        for x, y in loader:
            optimizer.zero_grad()
            criterion(model(x), y).backward()
            optimizer.step()
    """,
    "without moments": """
        for x, y in loader:
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            criterion(model(x), y).backward()
            optimizer.step()
    """,
    "of a model of each fold": """
        for rows in folds:
            model = Net()
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            criterion(model(x[rows]), y[rows]).backward()
            optimizer.step()
    """,
    "of a latent code": """
        for x in images:
            z = torch.zeros(8, requires_grad=True)
            optimizer = torch.optim.Adam([z], lr=1e-3)
            criterion(model(z), x).backward()
            optimizer.step()
    """,
    "of a copy that adapts": """
        for task in tasks:
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            criterion(model(task.x), task.y).backward()
            optimizer.step()
    """,
    "when a part is unfrozen": """
        for step, (x, y) in enumerate(loader):
            if step == 100:
                optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
            criterion(model(x), y).backward()
            optimizer.step()
    """,
}


EPOCHS_SICK = {
    "in a function": """
        def train_epoch(model, loader):
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
            for x, y in loader:
                optimizer.zero_grad()
                criterion(model(x), y).backward()
                optimizer.step()
        for epoch in range(9):
            train_epoch(model, loader)
            evaluate(model)
    """,
    "in the loop of epochs": """
        for epoch in range(args.epochs):
            optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
            for x, y in loader:
                criterion(model(x), y).backward()
                optimizer.step()
    """,
}
EPOCHS_HEALTHY = {
    "in rounds of clients": """
        def local_train(model, loader):
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            for x, y in loader:
                criterion(model(x), y).backward()
                optimizer.step()
        for client in clients:
            model.load_state_dict(server.state_dict())
            local_train(model, client.loader)
    """,
    "at a rate of the epoch": """
        for epoch in range(9):
            lr = 1e-3 * 0.9**epoch
            optimizer = torch.optim.Adam(model.parameters(), lr=lr)
            for x, y in loader:
                criterion(model(x), y).backward()
                optimizer.step()
    """,
    "a training of several epochs": """
        def fit(model, epochs):
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            for epoch in range(epochs):
                for x, y in loader:
                    criterion(model(x), y).backward()
                    optimizer.step()
        for width in (8, 16):
            fit(Net(width), 9)
    """,
}


def found(source: str) -> list[str]:
    rules = ("step-optimizer", "epoch-optimizer")
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule in rules]


@pytest.mark.parametrize("source", EPOCHS_SICK.values(), ids=EPOCHS_SICK)
def test_an_optimizer_for_each_epoch(source: str) -> None:
    assert found(source) == ["epoch-optimizer"]


@pytest.mark.parametrize("source", EPOCHS_HEALTHY.values(), ids=EPOCHS_HEALTHY)
def test_other_trainings_have_their_own(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_an_optimizer_for_each_step(source: str) -> None:
    assert found(source) == ["step-optimizer"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
