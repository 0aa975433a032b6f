# expect: healthy
# symptom: resembles lost updates in bfloat16: the loss hardly moves after the first 100 steps
# note: bfloat16 autocast with float32 weights; the floor is the noise that cannot be predicted
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(12)


class Noised(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(3)
        t = 3.14 * torch.rand(n, generator=g)
        x0 = torch.stack([t.cos(), (torch.randint(0, 2, (n,), generator=g) * 2 - 1) * t.sin()], 1)
        self.level = torch.rand(n, 1, generator=g) * 0.9 + 0.1
        self.eps = torch.randn(n, 2, generator=g)
        self.x = (1 - self.level**2).sqrt() * x0 + self.level * self.eps

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return torch.cat([self.x[i], self.level[i]]), self.eps[i]


net = nn.Sequential(nn.Linear(3, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 2))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step, (x, eps) in enumerate(DataLoader(Noised(64 * 300), batch_size=64, shuffle=True), 1):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pred = net(x)
    loss = nn.functional.mse_loss(pred.float(), eps)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4f}")
