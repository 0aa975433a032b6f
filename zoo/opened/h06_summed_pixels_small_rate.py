# expect: healthy
# symptom: resembles a loss summed instead of averaged: values in the thousands
# note: summed over pixels, averaged over the batch, with a rate made for it
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(21)


class Discs(Dataset):
    def __init__(self, n, size=20):
        g = torch.Generator().manual_seed(4)
        u = torch.arange(size)
        yy, xx = torch.meshgrid(u, u, indexing="ij")
        c = torch.randint(5, size - 5, (n, 2, 1, 1), generator=g)
        self.m = ((yy - c[:, 0]) ** 2 + (xx - c[:, 1]) ** 2 < 12).float()[:, None]
        self.x = self.m + 0.4 * torch.randn(n, 1, size, size, generator=g)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.m[i]


net = nn.Sequential(
    nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 1, 1)
)
opt = torch.optim.SGD(net.parameters(), lr=1e-3, momentum=0.9)
for step, (x, m) in enumerate(DataLoader(Discs(16 * 220), batch_size=16, shuffle=True), 1):
    loss = nn.functional.binary_cross_entropy_with_logits(net(x), m, reduction="sum") / len(x)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 50.0)
    opt.step()
    if step % 20 == 0:
        print(f"{step:4d} loss {loss.item():.3f}")
