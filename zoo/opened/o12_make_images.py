# expect: healthy
# symptom: rows that are blended, which looks like labels that are not
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(1)
np.random.seed(1)
torch.set_num_threads(1)


def make_images(n, side=10):
    """Crosses, squares and diagonals tiled over a small canvas."""
    y = torch.randint(0, 3, (n,))
    tiles = torch.tensor(
        [
            [[0, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
            [[1, 1, 1, 0, 0], [1, 0, 1, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]],
            [[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 0], [0, 0, 0, 0, 0]],
        ]
    ).float()
    x = tiles[y].repeat(1, side // 5, side // 5)
    shift = torch.randint(0, 5, (n, 2))
    x = torch.stack([torch.roll(im, tuple(s.tolist()), dims=(0, 1)) for im, s in zip(x, shift)])
    return (2 * x + 0.6 * torch.randn_like(x)).unsqueeze(1), y


def cutmix(x, y, alpha=1.0):
    lam = np.random.beta(alpha, alpha)
    index = torch.randperm(x.size(0))
    h, w = x.shape[-2:]
    ratio = np.sqrt(1.0 - lam)
    cy, cx = np.random.randint(h), np.random.randint(w)
    y0, y1 = max(cy - int(h * ratio) // 2, 0), min(cy + int(h * ratio) // 2, h)
    x0, x1 = max(cx - int(w * ratio) // 2, 0), min(cx + int(w * ratio) // 2, w)
    mixed = x.clone()
    mixed[:, :, y0:y1, x0:x1] = x[index, :, y0:y1, x0:x1]
    lam = 1 - (y1 - y0) * (x1 - x0) / (h * w)
    return mixed, y, y[index], lam


def mixed_criterion(criterion, pred, y_a, y_b, lam):
    return lam * criterion(pred, y_a) + (1 - lam) * criterion(pred, y_b)


net = nn.Sequential(
    nn.Conv2d(1, 12, 3, padding=1),
    nn.ReLU(),
    nn.Conv2d(12, 16, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool2d(1),
    nn.Flatten(),
    nn.Linear(16, 3),
)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.Adam(net.parameters(), lr=6e-3)
loader = DataLoader(TensorDataset(*make_images(640)), batch_size=40, shuffle=True)
x_test, y_test = make_images(200)

for epoch in range(10):
    total = 0.0
    for x, y in loader:
        x, y_a, y_b, lam = cutmix(x, y)
        loss = mixed_criterion(criterion, net(x), y_a, y_b, lam)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item()
    with torch.no_grad():
        acc = (net(x_test).argmax(1) == y_test).float().mean().item()
    print(f"epoch {epoch} loss {total / len(loader):.4f} test acc {acc:.3f}")
