"""Mistakes of order and of gradients that are read in the source of a script, and what resembles them."""

from __future__ import annotations

import textwrap

import pytest

from steadytrain.capture.looks.script_reading import mistakes

APART = {
    "one of two is drawn anew": """
        X, y = load()
        X = X[torch.randperm(len(X))]
        ds = TensorDataset(X, y)
    """,
    "labels of the inputs that were shuffled since": """
        X = np.random.randn(n, 4)
        y = (X @ w).argmax(1)
        np.random.shuffle(X)
        ds = TensorDataset(torch.tensor(X), torch.tensor(y))
    """,
    "two shuffles": """
        X, y = load()
        np.random.shuffle(X)
        np.random.shuffle(y)
        for a, b in zip(X, y): pass
    """,
    "split by an order of one": """
        X, y = load()
        perm = torch.randperm(len(X))
        Xtr, Xva = X[perm[:800]], X[perm[800:]]
        ytr, yva = y[:800], y[800:]
        train = TensorDataset(Xtr, ytr)
    """,
    "sorted": """
        texts = [r[0] for r in rows]
        labels = [r[1] for r in rows]
        texts = sorted(texts)
        pairs = list(zip(texts, labels))
    """,
    "made unique": """
        answers = read()
        questions = other()
        answers = sorted(set(answers))
        data = PairDataset(questions, answers)
    """,
    "two orders": """
        X, y = load()
        X = X[rng.permutation(len(X))]
        y = y[rng.permutation(len(y))]
        ds = TensorDataset(X, y)
    """,
    "a function that draws an order": """
        def mixed(rows, rng):
            order = rng.permutation(len(rows))
            return rows[order]
        def prepare(rng):
            images, angles = draw(100)
            images = mixed(images, rng)
            angles = mixed(angles, rng)
            return tensor(images[:80]), tensor(angles[:80])
    """,
    "a pair that is given and returned": """
        def clean(table, labels):
            table = np.unique(table, axis=0)
            labels = labels[: len(table)]
            return table / table.std(0), labels
    """,
}
TOGETHER = {
    "names of the classes": """
        def pick(self, counts):
            labels = np.array(self.labels, dtype=np.int64)
            classes = np.unique(labels)
            for one, count in zip(classes, counts):
                picked.append(self.data[np.where(labels == one)[0][:count]])
    """,
    "names of the classes, by a set": """
        def pick(self, counts):
            labels = list(self.labels)
            classes = sorted(set(labels))
            for one, count in zip(classes, counts):
                picked.append(self.data[labels == one][:count])
    """,
    "one order": """
        X, y = load()
        p = torch.randperm(len(X))
        X, y = X[p], y[p]
        ds = TensorDataset(X, y)
    """,
    "one order in two lines": """
        X, y = load()
        p = torch.randperm(len(X))
        X = X[p]
        y = y[p]
        tr = TensorDataset(X[:80], y[:80])
    """,
    "two generators of one seed": """
        X, y = load()
        random.Random(0).shuffle(X)
        random.Random(0).shuffle(y)
        zip(X, y)
    """,
    "one seed before each": """
        X, y = load()
        np.random.seed(1)
        np.random.shuffle(X)
        np.random.seed(1)
        np.random.shuffle(y)
        zip(X, y)
    """,
    "a vocabulary": """
        words = load()
        words = sorted(set(words))
        ids = range(len(words))
        vocab = dict(zip(words, ids))
    """,
    "negatives of the same rows": """
        docs = load()
        neg = docs[torch.randperm(len(docs))]
        ds = TensorDataset(docs, neg)
    """,
    "rows before they are taken apart": """
        rows = load()
        random.shuffle(rows)
        X = [r[0] for r in rows]
        y = [r[1] for r in rows]
        ds = TensorDataset(X, y)
    """,
    "labels of shuffled inputs": """
        X, y = load()
        X = X[torch.randperm(len(X))]
        y = (X @ w).argmax(1)
        ds = TensorDataset(X, y)
    """,
    "one state": """
        X, y = load()
        state = rng.get_state()
        rng.shuffle(X)
        rng.set_state(state)
        rng.shuffle(y)
        ds = TensorDataset(X, y)
    """,
    "one split": """
        perm = rng.permutation(n)
        train_idx, val_idx = perm[:80], perm[80:]
        X, y = load()
        tr = TensorDataset(X[train_idx], y[train_idx])
    """,
    "sorted by date": """
        X, y = load()
        order = np.argsort(dates)
        X = X[order]; y = y[order]
        X = torch.tensor(X); y = torch.tensor(y)
        tr = TensorDataset(X, y)
    """,
    "a function with a seed of its own": """
        def mixed(rows, seed):
            order = np.random.default_rng(seed).permutation(len(rows))
            return rows[order]
        def prepare():
            images, angles = draw(100)
            images = mixed(images, 0)
            angles = mixed(angles, 0)
            return images[:80], angles[:80]
    """,
    "another axis": """
        clouds, labels = load()
        clouds = clouds[:, torch.randperm(32)]
        data = TensorDataset(clouds, labels)
    """,
    "two domains": """
        xs, xt = load()
        xs = xs[torch.randperm(len(xs))]
        xt = xt[torch.randperm(len(xt))]
        batch = xs[:8], xt[:8]
    """,
    "two lists of files": """
        images, masks = listed("images"), listed("masks")
        images.sort()
        masks.sort()
        data = PairDataset(images, masks)
    """,
    "a palette": """
        names, colours = load()
        random.shuffle(colours)
        for name, colour in zip(names, colours): draw(name, colour)
    """,
}
CONSTANT = {
    "a penalty": """
        def penalty(critic, x):
            slope = torch.autograd.grad(critic(x).sum(), x)[0]
            return ((slope.norm(2, dim=1) - 1) ** 2).mean()
        for x in loader:
            loss = critic(x).mean() + 10 * penalty(critic, x)
            loss.backward()
    """,
    "a residual": """
        def slope(u, t):
            (du,) = torch.autograd.grad(u, t, torch.ones_like(u), retain_graph=True)
            return du
        def residual(net, t):
            u = net(t)
            return slope(u, t) + u
        for _ in range(9):
            loss = residual(net, t).square().mean()
            loss.backward()
    """,
    "a flag that is off": """
        for x in loader:
            g = torch.autograd.grad(net(x).sum(), x, create_graph=MASKED)[0]
            loss = net(x).mean() + g.pow(2).sum()
            loss.backward()
    """,
}
OF_THE_SCRIPT = """
    def grad(out, inp):
        (g,) = torch.autograd.grad(out.sum(), inp, create_graph=True)
        return g
    def step(x):
        u = model(x)
        u_x = grad(u, x)
        loss = (grad(u_x, x) - source(x)).pow(2).mean()
        loss.backward()
    """
FOLLOWED = {
    "a function of the script by the name of torch's": OF_THE_SCRIPT,
    "a graph": """
        for x in loader:
            g = torch.autograd.grad(net(x).sum(), x, create_graph=True)[0]
            (net(x).mean() + g.pow(2).sum()).backward()
    """,
    "a graph in training": """
        for x in loader:
            g = torch.autograd.grad(net(x).sum(), x, create_graph=net.training)[0]
            (net(x).mean() + g.pow(2).sum()).backward()
    """,
    "an input that is moved": """
        for x, y in loader:
            g = torch.autograd.grad(F.cross_entropy(net(x), y), x)[0]
            loss = F.cross_entropy(net(x + 0.1 * g / g.norm()), y)
            loss.backward()
    """,
    "a weight of a term": """
        for x in loader:
            one, other = first(net(x)), second(net(x))
            weight = torch.autograd.grad(one, last)[0].norm() / torch.autograd.grad(other, last)[0].norm()
            loss = one + weight * other
            loss.backward()
    """,
    "a number that is shown": """
        for x in loader:
            loss = net(x).mean()
            norm = torch.autograd.grad(loss, x, retain_graph=True)[0].norm().item()
            loss.backward()
    """,
    "forces of the data": """
        force = -torch.autograd.grad(truth(x).sum(), x)[0]
        for _ in range(9):
            loss = (net(x) - force).square().mean()
            loss.backward()
    """,
}

WRONG = [("separate-orders", APART), ("constant-penalty", CONSTANT)]
RIGHT = [TOGETHER, FOLLOWED]


def found(source: str) -> list[str]:
    found = [rule for rule, _ in mistakes(textwrap.dedent(source), {"MASKED": False})]
    return [rule for rule in found if rule != "second-derivative"]  # no mistake by itself


@pytest.mark.parametrize(
    ("rule", "source"), [pytest.param(rule, one, id=name) for rule, cases in WRONG for name, one in cases.items()]
)
def test_a_mistake_is_found(rule: str, source: str) -> None:
    assert set(found(source)) == {rule}


@pytest.mark.parametrize("source", [pytest.param(one, id=name) for cases in RIGHT for name, one in cases.items()])
def test_what_resembles_it_is_not(source: str) -> None:
    assert found(source) == []


@pytest.mark.parametrize(
    ("source", "prunes"),
    [
        ("pruner.prune(0.3)", True),
        ("prune.l1_unstructured(layer, 'weight', amount=0.2)", True),
        ("trial.should_prune()", False),
        ("raise optuna.TrialPruned()", False),
        ("scores = prune_tokens(scores)", False),
    ],
)
def test_a_script_that_prunes_its_weights(source: str, prunes: bool) -> None:
    assert (found(source) == ["pruning-code"]) is prunes
