"""Preprocessing that is fitted anew to held-out rows, read in the source, and preprocessing that is not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "named by what they give": """
        encoder = LabelEncoder()
        train_codes = encoder.fit_transform(names[:cut])
        test_codes = encoder.fit_transform(names[cut:])
    """,
    "one scaler twice": """
        scaler = StandardScaler()
        X_train = scaler.fit_transform(X_train)
        X_test = scaler.fit_transform(X_test)
    """,
    "a scaler for each": """
        x_train = MinMaxScaler().fit_transform(x_train)
        x_val = MinMaxScaler().fit_transform(x_val)
    """,
    "an encoder for each": "enc_tr, enc_te = LabelEncoder().fit(city_train), LabelEncoder().fit(city_test)",
    "by a key": """
        le = LabelEncoder()
        train["city"] = le.fit_transform(train["city"])
        test["city"] = le.fit_transform(test["city"])
    """,
    "numbers of categories": """
        codes_train = pd.factorize(train["city"])[0]
        codes_test = pd.factorize(test["city"])[0]
    """,
    "an object whose class is not seen": """
        def prepare(scaler, train, valid):
            return scaler.fit_transform(train), scaler.fit_transform(valid)
    """,
    "by hand": """
        X_train = (X_train - X_train.mean(0)) / X_train.std(0)
        X_test = (X_test - X_test.mean(0)) / X_test.std(0)
    """,
    "by hand, with names": """
        mu, sd = np.mean(xtrain, axis=0), np.std(xtrain, axis=0)
        a = (xtrain - mu) / sd
        mu, sd = np.mean(xtest, axis=0), np.std(xtest, axis=0)
        b = (xtest - mu) / (sd + 1e-6)
    """,
    "in a loop over both": """
        for part in (x_train, x_test):
            part[:] = MinMaxScaler().fit_transform(part)
    """,
}
HEALTHY = {
    "answers that are named by what they give": """
        encoder = LabelEncoder()
        train_labels = encoder.fit_transform(names[:cut])
        test_labels = encoder.fit_transform(names[cut:])
    """,
    "transformed": """
        scaler = StandardScaler()
        X_train = scaler.fit_transform(X_train)
        X_test = scaler.transform(X_test)
    """,
    "fitted to both together": """
        enc = LabelEncoder().fit(pd.concat([train["city"], test["city"]]))
        x_train, x_test = enc.transform(train["city"]), enc.transform(test["city"])
    """,
    "classes of targets": """
        le = LabelEncoder()
        y_train = le.fit_transform(y_train)
        y_test = le.fit_transform(y_test)
    """,
    "powers, which learn nothing": """
        poly = PolynomialFeatures(2)
        x_train, x_test = poly.fit_transform(x_train), poly.fit_transform(x_test)
    """,
    "words that are given": """
        vectorizer = CountVectorizer(vocabulary=words)
        x_train, x_test = vectorizer.fit_transform(train_texts), vectorizer.fit_transform(test_texts)
    """,
    "each row alone": """
        x_train = (x_train - x_train.mean(1, keepdims=True)) / x_train.std(1, keepdims=True)
        x_test = (x_test - x_test.mean(1, keepdims=True)) / x_test.std(1, keepdims=True)
    """,
    "the numbers of the training": """
        mu, sd = x_train.mean(0), x_train.std(0)
        x_train = (x_train - mu) / sd
        x_test = (x_test - mu) / sd
    """,
    "pictures": """
        def plot(train_points, test_points):
            a, b = PCA(2).fit_transform(train_points), PCA(2).fit_transform(test_points)
    """,
    "embeddings": "a, b = PCA(2).fit_transform(train_emb), PCA(2).fit_transform(test_emb)",
    "a calibration": """
        scaler = TemperatureScaler()
        scaler.fit(val_logits)
        model.fit(x_train)
    """,
    "two classes of one name": """
        x_train = StandardScaler().fit_transform(x_train)
        x_test_ranks = QuantileTransformer().fit_transform(x_test)
    """,
    "folds": """
        for train, test in folds.split(x):
            scaler = StandardScaler().fit(x[train])
            a, b = scaler.transform(x[train]), scaler.transform(x[test])
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "split-fit"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_a_fit_to_held_out_rows(source: str) -> None:
    assert found(source) == ["split-fit"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
