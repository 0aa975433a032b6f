# expect: healthy
# symptom: raw outputs without a sigmoid are compared with 0.5 to choose the best model
# axis: none
# mended: none
import copy
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(61)


class LeastSquaresProbe(nn.Module):
    """Linear read-out on random Fourier features, regressed on the 0/1 label."""

    def __init__(self, n_in, n_feat=400, scale=0.35):
        super().__init__()
        self.register_buffer("omega", scale * torch.randn(n_in, n_feat))
        self.register_buffer("phase", 6.2832 * torch.rand(n_feat))
        self.readout = nn.Linear(n_feat, 1)
        nn.init.zeros_(self.readout.weight)

    def forward(self, x):
        z = torch.cos(x @ self.omega + self.phase) * (2 / self.omega.shape[1]) ** 0.5
        return self.readout(z * 8).squeeze(1)


def spirals(n):
    label = torch.randint(0, 2, (n,)).float()
    r = 0.5 + 3 * torch.rand(n)
    angle = 1.5 * r + torch.pi * label
    xy = torch.stack([r * angle.cos(), r * angle.sin()], 1) + 0.25 * torch.randn(n, 2)
    return torch.cat([xy * 2, 0.3 * torch.randn(n, 3)], 1), label


train_loader = DataLoader(TensorDataset(*spirals(2000)), batch_size=50, shuffle=True)
val_x, val_y = spirals(600)
probe = LeastSquaresProbe(5)
mse = nn.MSELoss()
optim = torch.optim.Adam(probe.parameters(), lr=2e-2)
best = (0.0, -1, None)
for epoch in range(7):
    for x, y in train_loader:
        loss = mse(probe(x), y)
        optim.zero_grad()
        loss.backward()
        optim.step()
    with torch.no_grad():
        out = probe(val_x)
    acc = ((out > 0.5).float() == val_y).float().mean().item()
    if acc > best[0]:
        best = (acc, epoch, copy.deepcopy(probe.state_dict()))
    print(f"epoch {epoch} train mse {loss.item():.4f} val mse {mse(out, val_y).item():.4f} val acc {acc:.3f}")
probe.load_state_dict(best[2])
print(f"best epoch {best[1]} acc {best[0]:.3f}")
