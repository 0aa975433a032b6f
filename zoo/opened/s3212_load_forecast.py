# expect: sick
# symptom: train loss is fine, but the averaged weights that are evaluated stay close to the untrained ones
# axis: precision
# cause: the EMA shadow is kept in bfloat16, so its small increments are rounded away and it hardly moves
# says: (ema|shadow|averag).*(bfloat|bf16|half|16.?bit|round)|(bf16|bfloat|half|round).*(ema|shadow|averag)
# onset_step: 0
# fix: keep the shadow weights in float32
# mended: the script applies that change if the environment has MENDED=1
import copy
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(29)
MENDED = os.environ.get("MENDED") == "1"
CONTEXT, HORIZON, BATCH, STEPS = 48, 12, 32, 420


def feeders(count, length, seed):
    """Electric load of some feeders: daily shape, slow drift, autoregressive noise."""
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(length, dtype=torch.float32)
    rows = []
    for _ in range(count):
        a, b, ph = torch.rand(3, generator=g)
        base = (0.6 + a) * torch.sin(6.283 * t / 24 + 6.283 * ph)
        base = base + (0.3 + 0.4 * b) * torch.sin(6.283 * t / 12 + 3.0 * ph)
        noise = torch.zeros(length)
        eps = 0.12 * torch.randn(length, generator=g)
        for i in range(1, length):
            noise[i] = 0.8 * noise[i - 1] + eps[i]
        rows.append(base + noise)
    return torch.stack(rows)


class Windows:
    def __init__(self, series, seed):
        self.series = series
        self.g = torch.Generator().manual_seed(seed)

    def batch(self, n):
        rows = torch.randint(0, len(self.series), (n,), generator=self.g)
        last = self.series.shape[1] - CONTEXT - HORIZON
        starts = torch.randint(0, last, (n,), generator=self.g)
        win = torch.stack([self.series[r, s : s + CONTEXT + HORIZON] for r, s in zip(rows, starts)])
        return win[:, :CONTEXT], win[:, CONTEXT:]


class DilatedBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, 2 * ch, 3, dilation=dilation)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, h):
        a, b = self.conv(F.pad(h, (self.pad, 0))).chunk(2, dim=1)
        return h + self.mix(torch.tanh(a) * torch.sigmoid(b))


class Forecaster(nn.Module):
    def __init__(self, ch=16):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.blocks = nn.ModuleList(DilatedBlock(ch, d) for d in (1, 2, 4, 8))
        self.out = nn.Linear(ch, HORIZON)

    def forward(self, x):
        h = self.inp(x.unsqueeze(1))
        for blk in self.blocks:
            h = blk(h)
        return self.out(h[:, :, -1])


class Averager:
    """Exponential average of the weights, stored compactly next to the model."""

    def __init__(self, model, decay):
        self.decay = decay
        self.dtype = torch.float32 if MENDED else torch.bfloat16
        self.shadow = {k: v.detach().to(self.dtype, copy=True) for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model):
        for k, v in model.state_dict().items():
            self.shadow[k].mul_(self.decay).add_(v.to(self.dtype), alpha=1.0 - self.decay)

    def export(self, model):
        twin = copy.deepcopy(model)
        twin.load_state_dict({k: v.float() for k, v in self.shadow.items()})
        return twin.eval()


@torch.no_grad()
def mse(net, x, y):
    return F.mse_loss(net(x), y).item()


def main():
    train = Windows(feeders(40, 400, 1), 2)
    vx, vy = Windows(feeders(20, 400, 3), 4).batch(400)
    net = Forecaster()
    avg = Averager(net, decay=0.99)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    for step in range(STEPS):
        x, y = train.batch(BATCH)
        loss = F.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 5.0)
        opt.step()
        avg.update(net)
        if step % 50 == 0:
            shown = mse(avg.export(net), vx, vy)
            print(f"step {step:4d} loss {loss.item():.4f} valid mse (averaged) {shown:.4f}")
    print(f"final loss {loss.item():.4f} valid mse (averaged) {mse(avg.export(net), vx, vy):.4f}")


if __name__ == "__main__":
    main()
