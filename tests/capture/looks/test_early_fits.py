"""Preprocessing that is fitted before the split, read in the source, and preprocessing that is not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

LEARNED, SCALED = "learned-before-split", "scaled-before-split"
SICK = {
    "columns by labels": (
        """
        X = SelectKBest(k=20).fit_transform(X, y)
        X_train, X_test, y_train, y_test = train_test_split(X, y)
        """,
        [LEARNED],
    ),
    "copies of rows": (
        """
        X_res, y_res = SMOTE().fit_resample(X, y)
        rows = TensorDataset(torch.tensor(X_res), torch.tensor(y_res))
        train, test = random_split(rows, [80, 20])
        """,
        [LEARNED],
    ),
    "before folds": (
        """
        folds = StratifiedKFold(5)
        X = SelectPercentile(f_classif).fit_transform(X, y)
        for train, test in folds.split(X, y):
            run(X[train], X[test])
        """,
        [LEARNED],
    ),
    "a scaler": (
        """
        X_scaled = StandardScaler().fit_transform(df.values)
        X_train, X_test, y_train, y_test = train_test_split(X_scaled, y)
        """,
        [SCALED],
    ),
    "fitted, then transformed, then cut": (
        """
        sc = MinMaxScaler()
        sc.fit(df[["open", "close"]])
        data = sc.transform(df[["open", "close"]])
        X, y = cut(data, 24)
        split = int(len(X) * 0.8)
        X_train, X_test = X[:split], X[split:]
        """,
        [SCALED],
    ),
    "by hand, of a series": (
        """
        series = (series - series.mean()) / series.std()
        x_train = torch.tensor(series[:n])
        x_test = torch.tensor(series[n:])
        """,
        [SCALED],
    ),
}
HEALTHY = {
    "a fit to the first part": """
        scaler.fit(X[:n])
        X = scaler.transform(X)
        X_train, X_test = X[:n], X[n:]
    """,
    "a fit to the training rows": """
        X_train, X_test, y_train, y_test = train_test_split(X, y)
        X_train = StandardScaler().fit_transform(X_train)
        X_train, X_val, y_train, y_val = train_test_split(X_train, y_train)
    """,
    "split before": """
        a, b = X[:n], X[n:]
        Z = StandardScaler().fit_transform(X)
    """,
    "inside the fold": """
        folds = KFold(5)
        for train, test in folds.split(X):
            rows = SelectKBest(k=5).fit_transform(X[train], y[train])
    """,
    "constants": """
        X = (X / 255 - 0.5) / 0.5
        X_train, X_test = X[:n], X[n:]
    """,
    "by hand, of rows in no order": """
        X = (X - X.mean(0)) / X.std(0)
        X_train, X_test = X[:n], X[n:]
    """,
    "codes of labels": """
        y = LabelEncoder().fit_transform(y)
        X_train, X_test, y_train, y_test = train_test_split(X, y)
    """,
    "targets": """
        y = StandardScaler().fit_transform(y)
        X_train, X_test, y_train, y_test = train_test_split(X, y)
    """,
    "two parts that are both trained on": """
        Z = StandardScaler().fit_transform(X)
        left, right = Z[:n], Z[n:]
    """,
    "other rows are split": """
        Z = StandardScaler().fit_transform(X)
        Z = load()
        train, test = random_split(Z, [80, 20])
    """,
    "rows left out": """
        X, y = RandomUnderSampler().fit_resample(X, y)
        train, test = random_split(X, [80, 20])
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule in (LEARNED, SCALED)]


@pytest.mark.parametrize(("source", "rules"), SICK.values(), ids=SICK)
def test_a_fit_before_the_split(source: str, rules: list[str]) -> None:
    assert found(source) == rules


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
