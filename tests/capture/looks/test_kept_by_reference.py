"""A best model that is kept by reference, read in the source, and those that are copied."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "the model, under a second name": """
        opt = SGD(model.parameters(), 0.1)
        for epoch in range(9):
            train(model, opt)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc, best_model = acc, model
        test(best_model)
    """,
    "its state, saved at the end": """
        def fit(model, loader):
            best = float("inf")
            for epoch in range(9):
                train_epoch(model, loader)
                loss = evaluate(model)
                if loss < best:
                    best = loss
                    best_state = model.state_dict()
            torch.save(best_state, "best.pt")
    """,
    "in a dictionary that is returned": """
        def fit(model):
            best = {"loss": 1e9}
            for epoch in range(9):
                train_epoch(model)
                loss = evaluate(model)
                if loss < best["loss"]:
                    best = {"loss": loss, "state": model.state_dict()}
            return best
    """,
    "an attribute, tested by another method": """
        class Trainer:
            def fit(self):
                for epoch in range(9):
                    self.model.train()
                    self.run_epoch()
                    loss = self.evaluate()
                    if self.best is None or loss < self.best:
                        self.best = loss
                        self.best_model = self.model
            def test(self):
                return self.score(self.best_model)
    """,
    "in each fold": """
        for fold in range(5):
            model = Net()
            for epoch in range(9):
                train(model)
                acc = evaluate(model)
                if acc >= best_acc:
                    best_acc = acc
                    best_state = model.state_dict()
            states.append(best_state)
    """,
}
HEALTHY = {
    "a copy": """
        for epoch in range(9):
            train(model)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc, best_state = acc, copy.deepcopy(model.state_dict())
        torch.save(best_state, "best.pt")
    """,
    "clones": """
        for epoch in range(9):
            train(model)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc = acc
                best_state = {k: v.clone() for k, v in model.state_dict().items()}
        torch.save(best_state, "best.pt")
    """,
    "saved at once": """
        for epoch in range(9):
            train(model)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc = acc
                best_state = model.state_dict()
                torch.save(best_state, "best.pt")
        print(len(best_state))
    """,
    "a model of each pass": """
        for fold in range(5):
            model = Net()
            train(model)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc, best_model = acc, model
        test(best_model)
    """,
    "one of several models": """
        for model in models:
            model.train()
            acc = fit(model)
            if acc > best_acc:
                best_acc, best_model = acc, model
        test(best_model)
    """,
    "the loop ends": """
        for epoch in range(9):
            train(model)
            acc = evaluate(model)
            if acc > wanted:
                wanted, state = acc, model.state_dict()
                break
        torch.save(state, "last.pt")
    """,
    "not used after the loop": """
        for epoch in range(9):
            train(model)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc, best_model = acc, model
                show(best_model)
    """,
    "a load, which is seen when it is made": """
        for epoch in range(9):
            train(model)
            acc = evaluate(model)
            if acc > best_acc:
                best_acc, best_state = acc, model.state_dict()
        model.load_state_dict(best_state)
    """,
    "no score is kept": """
        for epoch in range(9):
            train(model)
            if epoch > 3:
                last = model.state_dict()
        torch.save(last, "last.pt")
    """,
    "a number": """
        for epoch in range(9):
            model.train()
            acc = step(model)
            if acc > best_acc:
                best_acc, best_epoch = acc, epoch
        print(best_epoch)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "kept-by-reference"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_what_is_kept_goes_on_training(source: str) -> None:
    assert found(source) == ["kept-by-reference"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
