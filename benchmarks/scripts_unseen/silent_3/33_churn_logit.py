# expect: sick
# fault: loss flat at the class prior (features and labels no longer belong together)
# onset_step: 0
# says: (?i)(prior|flat|guess|chance|no better than|not learn|base.?rate|constant (prediction|guess)|plateau|shuffl|entropy of|no progress)
# note: X and y are permuted with two different permutations in the split, so labels are independent of features and the binary cross entropy stays at the entropy of the prior.
import torch
from torch import nn

torch.set_num_threads(1)


def load(n=2400):
    g = torch.Generator().manual_seed(10)
    X = torch.randn(n, 8, generator=g)
    logit = 2 * X[:, 0] - 1.5 * X[:, 3] * X[:, 1] - 1.6
    y = (torch.rand(n, generator=g) < torch.sigmoid(2 * logit)).float()
    return X, y


def split(X, y, frac=0.8):
    k = int(len(X) * frac)
    X = X[torch.randperm(len(X))]
    y = y[torch.randperm(len(y))]
    return (X[:k], y[:k]), (X[k:], y[k:])


def train():
    torch.manual_seed(0)
    (X, y), (Xv, yv) = split(*load())
    clf = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 1), nn.Flatten(0))
    opt = torch.optim.Adam(clf.parameters(), lr=5e-3)
    crit = nn.BCEWithLogitsLoss()
    for epoch in range(5):
        tot = 0.0
        for i in range(0, len(X), 64):
            loss = crit(clf(X[i : i + 64]), y[i : i + 64])
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        print(f"epoch {epoch} train {tot / 30:.4f} final val {crit(clf(Xv), yv).item():.4f}")


train()
