"""Categories that are numbered anew for each part, and the ways to number them that are right."""

from __future__ import annotations

from rule_of_source import cases_of

TRAIN = """
    import pandas as pd
    table = nn.Embedding(100, 8)
    def read(frame):
        {codes}
        return torch.as_tensor(codes)
    for path in paths:
        frame = pd.read_csv(path)
        {use}
"""
USE = "loss = head(table(read(frame))).mean()"


def script(codes: str, use: str = USE) -> str:
    return TRAIN.format(codes=codes, use=use)


SPLITS = """
    table = nn.Embedding(100, 8)
    def read(frame):
        codes = frame["shop"].astype("category").cat.codes
        return torch.as_tensor(codes.to_numpy())
    {calls}
"""
SICK = {
    "factorize": script("codes, _ = pd.factorize(frame['shop'])"),
    "clipped": script(
        "codes, _ = pd.factorize(frame['shop'])",
        f"{USE}; loss.backward(); nn.utils.clip_grad_norm_(head.parameters(), 1.0); optimizer.step()",
    ),
    "first-of-factorize": script("codes = frame['shop'].factorize()[0]"),
    "codes": script("codes = frame['shop'].astype('category').cat.codes.to_numpy()"),
    "categorical": script("codes = pd.Categorical(frame['shop']).codes"),
    "encoder": script("codes = LabelEncoder().fit_transform(frame['shop'])"),
    "inverse": script("_, codes = np.unique(frame['shop'], return_inverse=True)"),
    "dictionary": script(
        "m = {v: i for i, v in enumerate(sorted(set(frame['shop'])))}; codes = [m[v] for v in frame['shop']]"
    ),
    "in-the-loop": script(
        "codes = 0", "codes, _ = pd.factorize(frame['shop']); loss = table(torch.as_tensor(codes)).sum()"
    ),
    "named-parts": TRAIN.replace("for path in paths", "for name, path in files").format(
        codes="codes, _ = pd.factorize(frame['shop'])", use=USE
    ),
    "for-each-batch": """
        table = nn.Embedding(100, 8)
        def collate(rows):
            index = {}
            return torch.tensor([index.setdefault(row["shop"], len(index)) for row in rows])
        loader = DataLoader(data, 32, collate_fn=collate)
    """,
    "files-of-a-set": """
        table = nn.Embedding(100, 8)
        class Sales(Dataset):
            def __init__(self, path):
                rows = path.read_text().splitlines()
                codes = {shop: i for i, shop in enumerate(sorted({row for row in rows}))}
                self.rows = [codes[row] for row in rows]
        data = ConcatDataset([Sales(path) for path in paths])
    """,
    "both-splits": SPLITS.format(calls="train_shops = read(train_frame); test_shops = read(test_frame)"),
}
HEALTHY = {
    "a-column": script("codes = 0", "pass").replace("for path in paths", "for column in columns")
    + "        codes, _ = pd.factorize(frame[column])\n",
    "all-at-once": SPLITS.format(calls="shops = read(pd.concat([train_frame, test_frame]))"),
    "fixed": script("codes = pd.Categorical(frame['shop'], categories=SHOPS).codes"),
    "kept": script("codes, values = pd.factorize(frame['shop'])"),
    "given": script("codes = frame['shop'].map(mapping)").replace("read(frame)", "read(frame, mapping)", 1),
    "nodes": script("node_codes, _ = pd.factorize(frame['shop']); codes = node_codes"),
    "two-columns": SPLITS.format(calls="users = read(frame); items = read(frame)"),
    "no-table": script("codes, _ = pd.factorize(frame['shop'])").replace("nn.Embedding(100, 8)", "nn.Linear(1, 8)"),
}
test_finds, test_leaves = cases_of("codes-of-parts", SICK, HEALTHY)
