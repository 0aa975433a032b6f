# expect: sick
# fault: inputs normalised twice
# onset_step: 0
# says: (?i)(twice|double|input.*(scale|range|mean|std|large|normali|magnitude|offset)|normali[sz]|standardi[sz]|scal(e|ing)|preprocess)
# note: the data set standardises with the raw statistics and the model standardises again with the same ones, so the inputs sit near a constant of large negative value.
import torch
from torch import nn

MEAN = torch.tensor([130.0, 900.0, 15.0, 60.0])
STD = torch.tensor([9.0, 40.0, 4.0, 12.0])


def load_table(n):
    z = torch.randn(n, 4)
    raw = z * STD + MEAN
    y = 2 * z[:, 0] - z[:, 1] + z[:, 2] * z[:, 3] + 0.1 * torch.randn(n)
    return (raw - MEAN) / STD, y


class Standardize(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", MEAN)
        self.register_buffer("std", STD)

    def forward(self, x):
        return (x - self.mean) / self.std


class Estimator:
    """scikit-like wrapper"""

    def __init__(self, lr=1e-3, epochs=5, batch=40, verbose=True):
        self.net = nn.Sequential(
            Standardize(), nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1)
        )
        self.lr, self.epochs, self.batch, self.verbose = lr, epochs, batch, verbose

    def fit(self, X, y):
        opt = torch.optim.AdamW(self.net.parameters(), lr=self.lr)
        for e in range(self.epochs):
            tot, k = 0.0, 0
            for idx in torch.randperm(len(X)).split(self.batch):
                loss = nn.functional.mse_loss(self.net(X[idx]).squeeze(1), y[idx])
                opt.zero_grad()
                loss.backward()
                opt.step()
                tot, k = tot + loss.item(), k + 1
            if self.verbose:
                print(f"epoch {e}: mse {tot / k:.4f}")
        return self

    @torch.no_grad()
    def score(self, X, y):
        p = self.net(X).squeeze(1)
        return 1 - ((p - y) ** 2).sum().item() / ((y - y.mean()) ** 2).sum().item()


torch.manual_seed(5)
X, y = load_table(1600)
est = Estimator().fit(X, y)
print("R2", est.score(*load_table(400)))
