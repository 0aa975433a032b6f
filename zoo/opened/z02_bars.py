# expect: healthy
# symptom: rows are changed on their way, which looks like a stored row that is overwritten
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset


def render(seed):
    """Draw one 10x10 picture with a horizontal or a vertical bar."""
    rng = np.random.default_rng(seed)
    img = rng.normal(0, 0.2, (10, 10)).astype(np.float32)
    kind = int(rng.integers(2))
    k = int(rng.integers(1, 9))
    if kind:
        img[k] += 1.0
    else:
        img[:, k] += 1.0
    return img, kind


class Bars(Dataset):
    def __init__(self, n):
        self.n = n
        self.cache = [None] * n
        self.seen = 0

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        if self.cache[i] is None:
            img, kind = render(i)
            img -= img.mean()
            img /= img.std() + 1e-6
            self.cache[i] = (torch.from_numpy(img), kind)
        self.seen += 1
        img, kind = self.cache[i]
        shift = torch.randint(-1, 2, (2,)).tolist()
        img = torch.roll(img, shift, dims=(0, 1))
        img.add_(torch.randn(img.shape), alpha=0.1)
        return img[None], kind


torch.manual_seed(0)
dataset = Bars(128)
loader = DataLoader(dataset, batch_size=16, shuffle=True)
net = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(6 * 64, 2))
opt = torch.optim.Adam(net.parameters(), lr=3e-3)

for epoch in range(8):
    acc = loss_sum = 0.0
    for img, kind in loader:
        out = net(img)
        loss = F.cross_entropy(out, kind)
        opt.zero_grad()
        loss.backward()
        opt.step()
        loss_sum += loss.item() / len(loader)
        acc += (out.argmax(1) == kind).float().mean().item() / len(loader)
    print(f"epoch {epoch}: loss={loss_sum:.4f} acc={acc:.3f} reads={dataset.seen}")
