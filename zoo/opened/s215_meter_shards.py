# expect: sick
# symptom: the loss leaps at the beginning of the second shard (step 151) and the error on held-out data of the first kind gets several times worse and stays so
# axis: data
# cause: from the second shard on the inputs are standardised with the mean and deviation of another unit (kW instead of W), so they are shifted and far larger
# says: (?i)data-shift|input-scale|(shard|epoch|data|inputs?|distribution|unit|normali[sz]|standardi[sz])\w*.{0,60}(shift|other|differ|change|scale|wrong|mismatch|mean|deviation|larger)|shift.{0,30}(data|input|distribution)
# onset_step: 151
# fix: standardise both shards with the same statistics
# mended: the second shard is standardised like the first
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(215)
T, B = 24, 32
FIX = os.environ.get("MENDED") == "1"
gen = torch.Generator().manual_seed(16)


def meter(n):
    """Watts: a day and a half-day cycle and noise."""
    t = torch.arange(T + 1) + 24 * torch.rand(n, 1, generator=gen)
    a = 200 + 300 * torch.rand(n, 1, generator=gen)
    w = (
        900
        + a * torch.sin(6.2832 * t / 12)
        + 0.5 * a * torch.sin(6.2832 * t / 6 + 1)
        + 20 * torch.randn(n, T + 1, generator=gen)
    )
    return w[:, :T, None], (w[:, T] - 900) / 300


def shard(n, mean, std):
    x, y = meter(n)
    return DataLoader(TensorDataset((x - mean) / std, y), batch_size=B, shuffle=True)


class Forecast(nn.Module):
    def __init__(self, h=40):
        super().__init__()
        self.gru, self.head = nn.GRU(1, h, batch_first=True), nn.Linear(h, 1)

    def forward(self, x):
        return self.head(self.gru(x)[0][:, -1]).squeeze(1)


net = Forecast()
opt = torch.optim.Adam(net.parameters(), lr=4e-3)
hx, hy = meter(512)
hx = (hx - 900) / 300
shards = [shard(150 * B, 900, 300), shard(150 * B, *((900, 300) if FIX else (0.9, 30)))]
step = 0
for loader in shards:
    for x, y in loader:
        step += 1
        loss = nn.functional.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or 149 < step < 154:
            with torch.no_grad():
                held = nn.functional.mse_loss(net(hx), hy)
            print(f"step {step} loss {loss.item():.4f} held-out {held.item():.4f}")
