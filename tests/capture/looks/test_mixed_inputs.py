"""Inputs that are mixed without their labels, read in the source."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

RULE = "unmixed-labels"
SICK = {
    "mixup": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        loss = cross_entropy(model(x), y)
        """,
    "cutmix": """
        order = torch.randperm(len(x))
        x[:, :, a:b, c:d] = x[order, :, a:b, c:d]
        loss = cross_entropy(model(x), y)
        """,
    "another order": """
        order = torch.randperm(len(x))
        mixed = x * lam + x[order] * (1 - lam)
        other = torch.randperm(len(x))
        loss = lam * ce(model(mixed), y) + (1 - lam) * ce(model(mixed), y[other])
        """,
    "exchanged weights": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        y_a, y_b = y, y[order]
        loss = lam * ce(model(x), y_b) + (1 - lam) * ce(model(x), y_a)
        """,
}
HEALTHY = {
    "both labels": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        y_a, y_b = y, y[order]
        loss = lam * ce(model(x), y_a) + (1 - lam) * ce(model(x), y_b)
        """,
    "labels that are mixed": """
        order = torch.randperm(len(x))
        x = lam * x + (1 - lam) * x[order]
        y = lam * y + (1 - lam) * y[order]
        """,
    "the order is returned": """
        def mixup(x, lam):
            order = torch.randperm(len(x))
            return lam * x + (1 - lam) * x[order], order
        """,
    "a penalty between real and generated": """
        between = eps * real + (1 - eps) * fake
        order = torch.randperm(4)
        """,
    "an average that moves": """
        mean = decay * mean + (1 - decay) * x[0]
        order = torch.randperm(4)
        """,
    "noise of other rows": """
        order = torch.randperm(len(x))
        x = x + 0.1 * x[order]
        """,
}


def found(source: str) -> set[str]:
    return {rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == RULE}


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_the_mistake(source: str) -> None:
    assert found(source) == {RULE}


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_what_resembles_it(source: str) -> None:
    assert found(source) == set()
