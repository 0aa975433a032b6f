# expect: healthy
# symptom: rows are sorted or grouped, which looks like an order that is not restored
# axis: none
# mended: none
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class SensorData(Dataset):
    def __init__(self, n, seed, sites=3):
        g = torch.Generator().manual_seed(seed)
        self.site = torch.randint(0, sites, (n,), generator=g)
        clean = torch.randn(n, 8, generator=g)
        gain = torch.tensor([1.0, 2.5, 0.5])[self.site]
        self.x = clean * gain[:, None] + self.site[:, None].float()
        region = (clean[:, 0] > 0).long() * 2 + (clean[:, 1] > 0).long()
        proj = torch.randn(4, 8, generator=torch.Generator().manual_seed(99))
        self.y = (clean * proj[region]).sum(1)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return self.x[i], self.site[i], self.y[i]


class SiteNorm(nn.Module):
    def __init__(self, d, sites=3):
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm1d(d) for _ in range(sites))

    def forward(self, x, site):
        order = site.argsort()
        sizes = torch.bincount(site, minlength=len(self.norms)).tolist()
        parts = [bn(p) if len(p) > 1 else p for bn, p in zip(self.norms, x[order].split(sizes))]
        y = torch.empty_like(x)
        y[order] = torch.cat(parts)
        return y


class TopTwo(nn.Module):
    def __init__(self, d, n=4):
        super().__init__()
        self.gate = nn.Linear(d, n)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.GELU(), nn.Linear(32, d)) for _ in range(n))

    def forward(self, x):
        val, idx = self.gate(x).topk(2, dim=-1)
        val = val.softmax(-1)
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            rows, slot = torch.where(idx == e)
            if rows.numel():
                out.index_add_(0, rows, expert(x[rows]) * val[rows, slot, None])
        return out


class Net(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.norm = SiteNorm(d)
        self.up = nn.Linear(d, 24)
        self.moe = TopTwo(24)
        self.out = nn.Linear(24, 1)

    def forward(self, x, site):
        h = F.relu(self.up(self.norm(x, site)))
        return self.out(h + self.moe(h)).squeeze(-1)


def main():
    torch.manual_seed(0)
    train = DataLoader(SensorData(1600, 0), batch_size=64, shuffle=True)
    test = DataLoader(SensorData(400, 1), batch_size=100)
    net = Net()
    opt = torch.optim.Adam(net.parameters(), lr=4e-3)
    for epoch in range(7):
        net.train()
        tot = 0.0
        for x, s, y in train:
            loss = F.mse_loss(net(x, s), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
            tot += loss.item()
        net.eval()
        with torch.no_grad():
            t = sum(F.mse_loss(net(x, s), y).item() for x, s, y in test) / len(test)
        print(f"epoch {epoch} loss {tot / len(train):.4f} test {t:.4f}")


main()
