"""Overlapping windows that are split at random, read in the source, and windows that are not."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

SICK = {
    "a comprehension": """
        X = np.stack([s[i:i + 24] for i in range(len(s) - 24)])
        y = s[24:]
        X_tr, X_te, y_tr, y_te = train_test_split(X, y, test_size=0.2)
    """,
    "a list of a loop": """
        def windows(s, n):
            X, y = [], []
            for i in range(len(s) - n):
                X.append(s[i : i + n])
                y.append(s[i + n])
            return np.array(X), np.array(y)
        X, y = windows(values, 30)
        data = TensorDataset(torch.tensor(X), torch.tensor(y))
        train, val = random_split(data, [80, 20])
    """,
    "by variables of the loop": """
        def cut(s, n):
            rows = []
            for i in range(len(s)):
                end = i + n
                window, after = s[i:end], s[end]
                rows.append((window, after))
            return rows
        rows = cut(s, 20)
        train, val = random_split(rows, [80, 20])
    """,
    "windows that end at the index": """
        X = []
        for i in range(60, len(s)):
            X.append(s[i - 60 : i, 0])
        X = np.array(X)
        a, b = train_test_split(X, random_state=0)
    """,
    "a data set": """
        class Windows(Dataset):
            def __len__(self):
                return len(self.s) - self.n
            def __getitem__(self, i):
                return self.s[i : i + self.n], self.s[i + self.n]
        train, val = random_split(Windows(s, 24), [0.8, 0.2])
    """,
    "a view": """
        x = torch.from_numpy(s).unfold(0, 48, 4)
        order = torch.randperm(len(x))
        train, val = x[order[:cut]], x[order[cut:]]
    """,
    "indices by name": """
        x = sliding_window_view(s, 48)
        order = np.random.permutation(len(x))
        train_idx, val_idx = order[:cut], order[cut:]
        x_train, x_val = x[train_idx], x[val_idx]
    """,
    "steps shorter than the window": """
        N, STEP = 128, 64
        N = 128
        STEP = 64
        x = [s[i : i + N] for i in range(0, len(s) - N, STEP)]
        train, val = random_split(x, [80, 20])
    """,
    "drawn folds": """
        x = np.array([s[i : i + n] for i in range(m)])
        for train, val in KFold(5, shuffle=True).split(x):
            run(x[train], x[val])
    """,
}
HEALTHY = {
    "side by side": """
        x = [s[i : i + 24] for i in range(0, len(s) - 24, 24)]
        train, val = random_split(x, [80, 20])
    """,
    "steps that are not known": """
        x = [s[i : i + n] for i in range(0, len(s) - n, step)]
        train, val = random_split(x, [80, 20])
    """,
    "a boundary in time": """
        x = np.stack([s[i : i + 24] for i in range(len(s) - 24)])
        train, val = x[:cut], x[cut:]
        order = torch.randperm(len(train))
        train = train[order]
    """,
    "without a draw": """
        x = np.stack([s[i : i + 24] for i in range(len(s) - 24)])
        train, val = train_test_split(x, shuffle=False)
    """,
    "folds in time": """
        x = np.stack([s[i : i + 24] for i in range(len(s) - 24)])
        for train, val in TimeSeriesSplit(5).split(x):
            run(x[train], x[val])
    """,
    "series that are split before": """
        train, val = train_test_split(series)
        x_train = [s[i : i + 24] for s in train for i in range(len(s) - 24)]
        x_val = np.stack([val[i : i + 24] for i in range(len(val) - 24)])
    """,
    "a data set of blocks": """
        class Blocks(Dataset):
            def __getitem__(self, i):
                i = i * self.n
                return self.s[i : i + self.n]
        train, val = random_split(Blocks(s, 24), [0.8, 0.2])
    """,
    "patches of images": """
        x = [image[i : i + 32, j : j + 32] for i in range(100)]
        train, val = random_split(x, [80, 20])
    """,
    "batches": """
        for i in range(0, len(x), 32):
            out.append(model(x[i : i + 32]))
        train, val = random_split(rows, [80, 20])
    """,
    "the number of them": """
        x = np.stack([s[i : i + 24] for i in range(len(s) - 24)])
        train, val = random_split(range(len(x)), [80, 20])
    """,
    "of what is usual": """
        x = np.stack([s[i : i + 24] for i in range(len(s) - 24)])
        train, val = train_test_split(x)
        find_anomalies(model)
    """,
}


def found(source: str) -> list[str]:
    return [rule for rule, _ in mistakes(textwrap.dedent(source), {}) if rule == "split-windows"]


@pytest.mark.parametrize("source", SICK.values(), ids=SICK)
def test_overlapping_windows_split_by_a_draw(source: str) -> None:
    assert found(source) == ["split-windows"]


@pytest.mark.parametrize("source", HEALTHY.values(), ids=HEALTHY)
def test_others_are_left_alone(source: str) -> None:
    assert found(source) == []
