# expect: sick
# fault: the helper draws a fresh permutation from the same generator at each call, so images and targets are put in different orders
# onset_step: 1
# says: (?i)(order|shuffl|align|labels of other rows|pairs?)
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(9)


def draw_patterns(n, rng):
    images = rng.normal(0, 0.4, size=(n, 1, 14, 14)).astype("float32")
    angle = rng.uniform(-1, 1, size=n).astype("float32")
    grid = np.linspace(-1, 1, 14, dtype="float32")
    for i in range(n):
        line = np.abs(grid[None, :] * angle[i] - grid[:, None]) < 0.15
        images[i, 0] += line * 1.5
    return images, angle


def mixed(array, rng):
    order = rng.permutation(len(array))
    return array[order]


def prepare(seed):
    rng = np.random.default_rng(seed)
    images, angle = draw_patterns(1500, rng)
    images = mixed(images, rng)
    angle = mixed(angle, rng)
    cut = 1250
    as_t = torch.from_numpy
    return (as_t(images[:cut]), as_t(angle[:cut])), (as_t(images[cut:]), as_t(angle[cut:]))


class SlopeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 12, 3)
        self.conv2 = nn.Conv2d(12, 24, 3, stride=2)
        self.fc1 = nn.Linear(24 * 25, 64)
        self.fc2 = nn.Linear(64, 1)

    def forward(self, x):
        x = F.gelu(self.conv1(x))
        x = F.gelu(self.conv2(x))
        x = F.gelu(self.fc1(x.flatten(1)))
        return self.fc2(x)[:, 0]


(train_x, train_y), (val_x, val_y) = prepare(seed=9)
net = SlopeNet()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1e-2)

step = 0
while step < 240:
    for start in range(0, len(train_x) - 49, 50):
        xb, yb = train_x[start : start + 50], train_y[start : start + 50]
        loss = F.mse_loss(net(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        step += 1
        if step % 40 == 0:
            with torch.no_grad():
                val = F.mse_loss(net(val_x), val_y).item()
            print(f"step {step}: train mse {loss.item():.4f}, val mse {val:.4f}")
        if step >= 240:
            break
