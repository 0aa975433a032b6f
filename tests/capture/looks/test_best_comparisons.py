"""Best models that are kept by the wrong comparison, read in the source, and by the right one."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a loss that rose": """
        best_loss = 0.0
        for epoch in range(9):
            val_loss = evaluate(model)
            if val_loss > best_loss:
                best_loss = val_loss
                torch.save(model.state_dict(), "best.pt")
    """,
    "an accuracy that fell": """
        class Trainer:
            def check(self, val_acc):
                if self.best_acc >= val_acc:
                    self.best_acc = val_acc
                    self.save_checkpoint("best")
    """,
    "from a report": """
        if report["rmse"] > best_rmse:
            best_rmse, best = report["rmse"], copy.deepcopy(model)
    """,
}
HEALTHY = {
    "a loss that fell": """
        best_loss = float("inf")
        if val_loss < best_loss:
            best_loss = val_loss
            torch.save(model.state_dict(), "best.pt")
    """,
    "an accuracy that rose": """
        if acc > best_acc:
            best_acc, best = acc, copy.deepcopy(model)
    """,
    "the best value first": """
        if best_loss > val_loss:
            best_loss = val_loss
            torch.save(model.state_dict(), "best.pt")
    """,
    "a sign that is turned": """
        val_loss = -evaluate(model)
        if val_loss > best_loss:
            best_loss = val_loss
            torch.save(model.state_dict(), "best.pt")
    """,
    "the hardest example": """
        if loss > best_loss:
            best_loss, best_delta = loss, delta.clone()
    """,
    "the worst case": """
        if loss > worst_loss:
            worst_loss = loss
            torch.save(model.state_dict(), "worst.pt")
    """,
    "a count of patience": """
        if val_loss > best_loss:
            patience += 1
            torch.save(model.state_dict(), "last.pt")
    """,
    "a score that may fall": """
        if fid_score < best_fid_score:
            best_fid_score = fid_score
            torch.save(model.state_dict(), "best.pt")
        score = rmse(model)
        if score < best_score:
            best_score = score
            torch.save(model.state_dict(), "best.pt")
    """,
    "meant, as its begin says": """
        best_loss = -math.inf
        if loss > best_loss:
            best_loss = loss
            torch.save(model.state_dict(), "best.pt")
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "wrong-best"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_the_worse_one_is_kept(source: str) -> None:
    assert found(source) == ["wrong-best"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
