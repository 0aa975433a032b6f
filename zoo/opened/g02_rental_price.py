# expect: sick
# symptom: the training error is small but the test error is ten times that of a colleague, although both come from the same market
# axis: data
# cause: the label encoder is fitted again on the test rows, so that the same district gets another code (and another embedding row) than in training
# says: (fit|refit|re-fit|fit_transform).*(test|again|twice|second)|test.*(fit_transform|refit|own (encoder|codes|mapping|scaler|statistics))|different (codes|mapping|ids)|encoder.*(test|again)
# onset_step: 0
# fix: fit the encoder on the training rows only and call transform on the test rows
# mended: transform in place of fit_transform on the test rows
import os
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SEED = 21
np.random.seed(SEED)
torch.manual_seed(SEED)


class LabelEncoder:
    def fit(self, values):
        self.classes_ = np.unique(values)
        return self

    def transform(self, values):
        return np.searchsorted(self.classes_, values).clip(0, len(self.classes_) - 1)

    def fit_transform(self, values):
        return self.fit(values).transform(values)


def load_listings(n=2600):
    districts = np.array([f"district_{i:03d}" for i in range(60)])
    level = np.random.normal(0, 5.0, 60)
    freq = np.random.dirichlet(np.full(60, 0.5))
    d = np.random.choice(60, n, p=freq)
    size = np.random.uniform(20, 140, n)
    floor = np.random.randint(0, 9, n)
    price = 12 + level[d] - 0.03 * size + 0.2 * floor + np.random.normal(0, 0.5, n)
    return districts[d], np.stack([size / 80 - 1, floor / 4 - 1], 1).astype("float32"), price.astype("float32")


class RentModel(nn.Module):
    def __init__(self, n_districts):
        super().__init__()
        self.emb = nn.Embedding(n_districts, 8)
        self.mlp = nn.Sequential(nn.Linear(10, 48), nn.ReLU(), nn.Linear(48, 1))

    def forward(self, d, x):
        return self.mlp(torch.cat([self.emb(d), x], 1)).squeeze(1)


names, feats, price = load_listings()
cut = 2200
encoder = LabelEncoder()
train_codes = encoder.fit_transform(names[:cut])
n_codes = len(encoder.classes_)
if MENDED:
    test_codes = encoder.transform(names[cut:])
else:
    test_codes = encoder.fit_transform(names[cut:])

train_ds = TensorDataset(torch.tensor(train_codes), torch.tensor(feats[:cut]), torch.tensor(price[:cut]))
test_ds = TensorDataset(torch.tensor(test_codes), torch.tensor(feats[cut:]), torch.tensor(price[cut:]))
net = RentModel(n_codes)
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
for epoch in range(10):
    net.train()
    running = []
    for d, x, t in DataLoader(train_ds, batch_size=64, shuffle=True):
        opt.zero_grad()
        loss = nn.functional.mse_loss(net(d, x), t)
        loss.backward()
        opt.step()
        running.append(loss.item())
    net.eval()
    with torch.no_grad():
        err = torch.cat([(net(d, x) - t).abs() for d, x, t in DataLoader(test_ds, batch_size=256)]).mean()
    print(f"epoch {epoch}: train mse {np.mean(running):.3f}  test mae {err:.3f} EUR/m2")
