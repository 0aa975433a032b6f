# expect: sick
# symptom: the loss stays far above what the model can reach
# axis: model
# cause: results are joined expert by expert, so each row gets the result of another row
# says: permut|un-?sort|argsort|(original|wrong|sorted|grouped|another) order|not (put|sorted|scattered|written) back|(wrong|other|another|different) (row|sample|token)|(row|token|output|result)s?.{0,40}(mixed|misalign|shuffl|scrambl)
# onset_step: 0
# fix: put the results back into the order of the rows
# mended: the inverse order
import os
import numpy as np
import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

np.random.seed(1)
torch.manual_seed(1)

N = 2000
X = np.random.uniform(-2, 2, size=(N, 4)).astype("float32")
Y = np.where(X[:, 0] > 0.5, np.sin(3 * X[:, 1]), np.where(X[:, 0] < -0.5, X[:, 2] ** 2, X[:, 3] - X[:, 1])).astype(
    "float32"
)
X, Y = torch.from_numpy(X), torch.from_numpy(Y)


def mlp(i, h, o):
    return nn.Sequential(nn.Linear(i, h), nn.ReLU(), nn.Linear(h, o))


class GatedRegressor(nn.Module):
    def __init__(self, n_in=4, k=3):
        super().__init__()
        self.gate = mlp(n_in, 16, k)
        self.experts = nn.ModuleList(mlp(n_in, 32, 1) for _ in range(k))

    def forward(self, x):
        scores = torch.softmax(self.gate(x), dim=1)
        top, which = scores.max(dim=1)
        outputs = []
        for e, expert in enumerate(self.experts):
            mask = which == e
            if mask.any():
                outputs.append(expert(x[mask]) * top[mask].unsqueeze(1))
        joined = torch.cat(outputs, 0).squeeze(1)
        if MENDED:
            joined = joined[which.argsort(stable=True).argsort()]
        return joined


model = GatedRegressor()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=180)
criterion = nn.MSELoss()

for epoch in range(9):
    order = torch.randperm(N)
    running = 0.0
    for i in range(0, N, 100):
        idx = order[i : i + 100]
        optimizer.zero_grad()
        pred = model(X[idx])
        loss = criterion(pred, Y[idx])
        loss.backward()
        optimizer.step()
        sched.step()
        running += loss.item()
    print(f"epoch {epoch + 1} loss {running / 20:.4f}")
