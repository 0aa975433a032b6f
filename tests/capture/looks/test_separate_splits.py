"""Inputs and targets that are split by two draws, read in the source, and others."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "without a seed": """
        X_train, X_test = train_test_split(X, test_size=0.2)
        y_train, y_test = train_test_split(y, test_size=0.2)
        model.fit(X_train, y_train)
    """,
    "with two": """
        X_train, X_test = train_test_split(X, random_state=1)
        y_train, y_test = train_test_split(y, random_state=2)
        train = TensorDataset(torch.tensor(X_train), torch.tensor(y_train))
    """,
    "with one that draws on": """
        np.random.seed(0)
        train_images, test_images = train_test_split(images)
        train_masks, test_masks = train_test_split(masks)
        loader = DataLoader(list(zip(train_images, train_masks)))
    """,
}
HEALTHY = {
    "with one seed": """
        X_train, X_test = train_test_split(X, random_state=1)
        y_train, y_test = train_test_split(y, random_state=1)
        train = TensorDataset(X_train, y_train)
    """,
    "in one call": """
        X_train, X_test, y_train, y_test = train_test_split(X, y)
        X_train, X_val, y_train, y_val = train_test_split(X_train, y_train)
        train = TensorDataset(X_train, y_train)
    """,
    "one after the other": """
        rows, test = train_test_split(labels)
        train, val = train_test_split(rows)
        data = TensorDataset(rows, train)
    """,
    "in order": """
        X_train, X_test = train_test_split(X, shuffle=False)
        y_train, y_test = train_test_split(y, shuffle=False)
        train = TensorDataset(X_train, y_train)
    """,
    "seeded before each": """
        np.random.seed(0)
        X_train, X_test = train_test_split(X)
        np.random.seed(0)
        y_train, y_test = train_test_split(y)
        train = TensorDataset(X_train, y_train)
    """,
    "two sets of one kind": """
        cats_train, cats_test = train_test_split(cats)
        dogs_train, dogs_test = train_test_split(dogs)
        train = ConcatDataset(cats_train, dogs_train)
    """,
    "not paired": """
        X_train, X_test = train_test_split(X)
        y_train, y_test = train_test_split(y)
        print(len(X_train), len(y_train))
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "separate-splits"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_two_draws(source: str) -> None:
    assert found(source) == ["separate-splits"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
