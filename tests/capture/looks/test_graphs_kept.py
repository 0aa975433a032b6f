"""Losses that are kept with their graphs, read in the source, and losses that are not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

ALL, PASS = "kept-graphs", "kept-in-epoch"
SICK = {
    "listed": (
        ALL,
        """
        history = []
        for x, y in loader:
            loss = criterion(model(x), y)
            loss.backward()
            history.append(loss)
        """,
    ),
    "over all epochs, in a function": (
        ALL,
        """
        def main():
            losses = []
            for epoch in range(3):
                for x, y in loader:
                    loss = criterion(model(x), y)
                    scaler.scale(loss / 4).backward()
                    losses.append(loss.cpu())
        """,
    ),
    "summed in each epoch": (
        PASS,
        """
        for epoch in range(3):
            total = 0.0
            for x, y in loader:
                loss = criterion(model(x), y)
                loss.backward()
                total = total + loss * len(x)
        """,
    ),
    "summed in a function": (
        PASS,
        """
        def train_epoch(self):
            total = 0
            for x, y in self.loader:
                loss = self.criterion(self.model(x), y)
                self.accelerator.backward(loss)
                total += loss
            return total
        """,
    ),
}
HEALTHY = {
    "numbers": """
        total, losses = 0.0, []
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            total += loss.item()
            losses.append(float(loss))
    """,
    "a number of the same name": """
        losses = []
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            loss = loss.detach()
            losses.append(loss)
    """,
    "without a graph": """
        total = 0.0
        for x in loader:
            loss = model(x).mean()
            loss.backward()
            with torch.no_grad():
                total += loss
    """,
    "made anew in the loop": """
        for x in loader:
            total = 0.0
            loss = model(x).mean()
            loss.backward()
            total += loss
    """,
    "emptied in the loop": """
        losses = []
        for step, x in enumerate(loader):
            loss = model(x).mean()
            loss.backward()
            losses.append(loss)
            if step % 100 == 0:
                losses = []
    """,
    "cleared in the loop": """
        losses = []
        for step, x in enumerate(loader):
            loss = model(x).mean()
            loss.backward()
            losses.append(loss)
            if step % 100 == 0:
                print(sum(losses))
                losses.clear()
    """,
    "for a common backward": """
        total = 0.0
        for x in loader:
            loss = model(x).mean()
            loss.backward(retain_graph=True)
            total += loss
        total.backward()
    """,
    "what the backward is called on": """
        losses = []
        for x in loader:
            loss = model(x).mean()
            losses.append(loss)
            if len(losses) == 4:
                loss = torch.stack(losses).mean()
                loss.backward()
                losses.clear()
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule in (ALL, PASS)]


@pytest.mark.parametrize(("rule", "source"), SICK.values(), ids=SICK)
def test_kept_with_its_graph(rule: str, source: str) -> None:
    assert found(source) == [rule]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
