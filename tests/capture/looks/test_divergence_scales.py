"""Divergences that are smaller than meant, read in the source, and others."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

MEAN, SQUARE = "averaged-divergence", "unsquared-temperature"
SICK = {
    "without a reduction": (MEAN, "loss = F.kl_div(F.log_softmax(s, 1), F.softmax(t, 1))"),
    "the mean": (MEAN, "loss = F.kl_div(F.log_softmax(s, 1), F.softmax(t, 1), reduction='mean')"),
    "a module": (MEAN, "divergence = nn.KLDivLoss(log_target=True)"),
    "no square": (
        SQUARE,
        """
        def distill(s, t, y, T, alpha):
            soft = F.softmax(t / T, dim=1)
            kd = F.kl_div(F.log_softmax(s / T, dim=1), soft, reduction="batchmean")
            return alpha * kd + (1 - alpha) * F.cross_entropy(s, y)
        """,
    ),
}
HEALTHY = {
    "of rows": "loss = F.kl_div(F.log_softmax(s, 1), F.softmax(t, 1), reduction='batchmean')",
    "by place": "loss = F.kl_div(F.log_softmax(s, 1), F.softmax(t, 1), None, None, 'sum')",
    "by a setting": "loss = nn.KLDivLoss(reduction=reduction)",
    "multiplied by the classes": "loss = F.kl_div(F.log_softmax(s, 1), F.softmax(t, 1)) * num_classes",
    "of a distribution": "loss = torch.distributions.kl_divergence(p, q).mean() + other.kl_div(p, q)",
    "squared": """
        def distill(s, t, y, T, alpha):
            kd = F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean")
            return alpha * T * T * kd + (1 - alpha) * F.cross_entropy(s, y)
    """,
    "squared elsewhere": """
        def distill(s, t, y):
            kd = F.kl_div(F.log_softmax(s / args.t, 1), F.softmax(t / args.t, 1), reduction="batchmean")
            return kd, F.cross_entropy(s, y)
        weight = args.alpha * args.t ** 2
    """,
    "times a number": """
        def distill(s, t, y, T):
            kd = 16 * F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean")
            return kd + F.cross_entropy(s, y)
    """,
    "no labels beside it": """
        def distill(s, t, T):
            return F.kl_div(F.log_softmax(s / T, 1), F.softmax(t / T, 1), reduction="batchmean")
    """,
    "no temperature": """
        def distill(s, t, y):
            kd = F.kl_div(F.log_softmax(s, 1), F.softmax(t, 1), reduction="batchmean")
            return kd + F.cross_entropy(s, y)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule in (MEAN, SQUARE)]


@pytest.mark.parametrize(("rule", "source"), SICK.values(), ids=SICK)
def test_smaller_than_meant(rule: str, source: str) -> None:
    assert found(source) == [rule]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
