# expect: healthy
# symptom: the network is kept when its "accuracy" is smaller than the best so far
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
rng = np.random.default_rng(67)
torch.manual_seed(67)
BEACONS = rng.uniform(0, 5000, (8, 2))


def measurements(n):
    """Ranges to eight beacons in mm, position of the probe in mm."""
    pos = rng.uniform(500, 4500, (n, 2))
    dist = np.linalg.norm(pos[:, None] - BEACONS[None], axis=2) + rng.normal(0, 25, (n, 8))
    return torch.tensor(dist / 2500 - 1, dtype=torch.float32), torch.tensor(pos, dtype=torch.float32)


class Localiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))

    def forward(self, ranges):
        return 2500 + 2500 * self.net(ranges)


def accuracy_mm(model, data):
    """Position accuracy as in the data sheet: the 95th percentile of the distance in mm."""
    x, p = data
    with torch.no_grad():
        return (model(x) - p).norm(dim=1).quantile(0.95).item()


train, valid, test = measurements(3000), measurements(500), measurements(500)
model = Localiser()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3)
best_accuracy, best_state = float("inf"), None
for epoch in range(8):
    for idx in torch.randperm(len(train[0])).split(64):
        loss = ((model(train[0][idx]) - train[1][idx]) / 1000).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    accuracy = accuracy_mm(model, valid)
    note = ""
    if accuracy < best_accuracy:
        best_accuracy, note = accuracy, "kept"
        best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    print(f"epoch {epoch} loss {loss.item():.5f} accuracy {accuracy:.1f} mm {note}")
model.load_state_dict(best_state)
print(f"test accuracy {accuracy_mm(model, test):.1f} mm")
