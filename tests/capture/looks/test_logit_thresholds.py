"""Logits that are compared with 0.5, read in the source, and probabilities."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "under a second name": """
        criterion = nn.BCEWithLogitsLoss()
        def validate(model, x, y, criterion):
            model.eval()
            output = model(x)
            scores = output
            predicted = (scores > 0.5).float()
            return criterion(output, y).item(), (predicted == y).float().mean()
    """,
    "in the loop": """
        criterion = nn.BCEWithLogitsLoss()
        for x, y in loader:
            out = model(x).squeeze(1)
            loss = criterion(out, y)
            right += ((out > 0.5).float() == y).sum()
    """,
    "rounded": """
        def step(x, y):
            out = model(x)
            loss = F.binary_cross_entropy_with_logits(out.view(-1), y)
            return loss, torch.round(out)
    """,
    "in an evaluation": """
        criterion = nn.BCEWithLogitsLoss()
        def evaluate(model):
            model.eval()
            for x, y in loader:
                logits = model(x)
                predicted = (logits.squeeze() >= 0.5).long()
            return predicted
    """,
    "of an attribute": """
        class Trainer:
            def __init__(self):
                self.criterion = nn.BCEWithLogitsLoss(pos_weight=weight)
            def step(self, x, y):
                output = self.model(x)
                loss = self.criterion(output, y)
                return loss, output.detach().cpu().numpy() > 0.5
    """,
}
HEALTHY = {
    "zero": """
        out = model(x)
        loss = F.binary_cross_entropy_with_logits(out, y)
        predicted = out > 0
    """,
    "a sigmoid": """
        criterion = nn.BCEWithLogitsLoss()
        out = model(x)
        loss = criterion(out, y)
        predicted = out.sigmoid() > 0.5
    """,
    "a sigmoid before": """
        criterion = nn.BCEWithLogitsLoss()
        out = model(x)
        loss = criterion(out, y)
        out = torch.sigmoid(out)
        predicted = out > 0.5
    """,
    "probabilities": """
        criterion = nn.BCELoss()
        out = model(x)
        loss = criterion(out, y)
        predicted = out > 0.5
    """,
    "a forward that squashes in evaluation": """
        class Net(nn.Module):
            def forward(self, x):
                x = self.last(x)
                return x if self.training else torch.sigmoid(x)
        criterion = nn.BCEWithLogitsLoss()
        def evaluate(model):
            model.eval()
            return model(x) > 0.5
    """,
    "another number": """
        criterion = nn.BCEWithLogitsLoss()
        out = model(x)
        loss = criterion(out, y)
        if loss > 0.5 or y > 0.5:
            print(round(loss.item()))
    """,
    "a second model of the file": """
        criterion = nn.BCEWithLogitsLoss()
        mask_loss = nn.BCELoss()
        def evaluate(model):
            model.eval()
            out = model(x)
            return out > 0.5
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "logit-threshold"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_threshold_of_probabilities(source: str) -> None:
    assert found(source) == ["logit-threshold"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
