# expect: sick
# symptom: from step 620 on the gradient norm climbs without end, the loss explodes (1e25 by step 720, then NaN)
# axis: optimizer
# cause: in the second phase zero_grad is never called, so the gradients of all batches add up
# says: (?i)zero_grad|(gradient|grad)s?.{0,60}(accumulat|add up|not (cleared|zeroed|reset)|never (cleared|zeroed|reset)|pile|left ?over)
# onset_step: 620
# fix: call zero_grad after every step in the second phase as well
# mended: MENDED=1 python s51_accumulating_gru.py
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(58)


class Waves(Dataset):
    def __init__(self, n, seed):
        g = torch.Generator().manual_seed(seed)
        f = 0.2 + 0.6 * torch.rand(n, 1, generator=g)
        t = torch.arange(11) + 6.28 * torch.rand(n, 1, generator=g) / f
        self.w = torch.sin(f * t) + 0.05 * torch.randn(n, 11, generator=g)

    def __len__(self):
        return len(self.w)

    def __getitem__(self, i):
        return self.w[i, :10, None], self.w[i, 10:]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.fc = nn.GRU(1, 16, batch_first=True), nn.Linear(16, 1)

    def forward(self, x):
        return self.fc(self.gru(x)[0][:, -1])


def phase(loader, start, clear):
    for k, (x, y) in enumerate(loader, start + 1):
        loss = nn.functional.mse_loss(net(x), y)
        loss.backward()
        norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm().item()
        opt.step()
        if clear:
            opt.zero_grad()
        if k % 40 == 0:
            print(f"step {k} loss {loss.item():.5f} grad {norm:.4f}")
    return k


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.08, momentum=0.8)
done = phase(DataLoader(Waves(16 * 619, 1), batch_size=16, shuffle=True), 0, clear=True)
phase(DataLoader(Waves(16 * 200, 2), batch_size=16, shuffle=True), done, clear=os.environ.get("MENDED") == "1")
