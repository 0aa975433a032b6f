# expect: healthy
# symptom: model.train() before the test predictions
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(31)
rng = np.random.default_rng(31)
PASSES = 40


def patients(n):
    x = rng.normal(size=(n, 9)).astype("float32")
    dose = 1.5 * x[:, 0] + np.abs(x[:, 1]) - 0.7 * x[:, 2] * (x[:, 3] > 0)
    return torch.from_numpy(x), torch.from_numpy((dose + 0.2 * rng.normal(size=n)).astype("float32"))


class DoseNet(nn.Module):
    def __init__(self, p=0.1):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(9, 96), nn.ReLU(), nn.Dropout(p), nn.Linear(96, 96), nn.ReLU(), nn.Dropout(p), nn.Linear(96, 1)
        )

    def forward(self, x):
        return self.layers(x).squeeze(-1)


def posterior_samples(model, x, passes):
    """Gal and Ghahramani (2016): the masks are the posterior, so they stay on."""
    model.train()
    with torch.no_grad():
        return torch.stack([model(x) for _ in range(passes)])


x_train, y_train = patients(1500)
x_val, y_val = patients(250)
x_test, y_test = patients(250)
model = DoseNet()
opt = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-5)
for epoch in range(12):
    model.train()
    for idx in torch.randperm(len(x_train)).split(64):
        loss = nn.functional.mse_loss(model(x_train[idx]), y_train[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    with torch.no_grad():
        val = nn.functional.mse_loss(model(x_val), y_val)
    print(f"epoch {epoch} train {loss.item():.3f} val {val.item():.3f}")

draws = posterior_samples(model, x_test, PASSES)
mean, spread = draws.mean(0), draws.std(0)
err = (mean - y_test).abs()
sure = spread < spread.median()
print(
    f"test mae {err.mean():.3f}, sure half {err[sure].mean():.3f}, unsure half {err[~sure].mean():.3f}, mean spread {spread.mean():.3f}"
)
