# expect: healthy
# symptom: resembles the fault that records are sorted by time first and made into a table as if sorted by entity, so each row mixes entities
# axis: none
# mended: none
import numpy as np
import torch
from torch import nn

rng = np.random.default_rng(30)
torch.manual_seed(30)
buoys, times, look = 10, 200, 16

# raw telegrams come in any order
b = np.repeat(np.arange(buoys), times)
t = np.tile(np.arange(times), buoys)
height = 1.5 + 0.1 * b + np.sin(2 * np.pi * t / 12.5 + b) + 0.1 * rng.standard_normal(b.size)
mix = rng.permutation(b.size)
b, t, height = b[mix], t[mix], height[mix]

idx = np.lexsort((t, b))
grid = height[idx].reshape(buoys, times).astype(np.float32)

split = 160
center = grid[:, :split].mean(axis=1, keepdims=True)
scale = grid[:, :split].std(axis=1, keepdims=True)
grid = torch.from_numpy((grid - center) / scale)


def frames(block):
    w = block.unfold(1, look + 1, 1).reshape(-1, look + 1)
    return w[:, :look], w[:, look]


tr_x, tr_y = frames(grid[:, :split])
te_x, te_y = frames(grid[:, split - look :])


class WaveNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv1d(1, 24, 5)
        self.c2 = nn.Conv1d(24, 24, 5)
        self.fc = nn.Linear(24 * (look - 8), 1)

    def forward(self, x):
        x = torch.relu(self.c1(x[:, None]))
        x = torch.relu(self.c2(x))
        return self.fc(x.flatten(1))[:, 0]


net = WaveNet()
optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
for it in range(1, 61):
    sel = torch.randint(0, tr_x.shape[0], (64,))
    err = (net(tr_x[sel]) - tr_y[sel]).square().mean()
    optimizer.zero_grad()
    err.backward()
    optimizer.step()
    if it % 20 == 0:
        with torch.no_grad():
            test = (net(te_x) - te_y).square().mean()
        print(f"iter {it} train mse {err.item():.4f} test mse {test.item():.4f}")
