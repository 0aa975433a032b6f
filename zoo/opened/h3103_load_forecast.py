# expect: healthy
# symptom: a rough loss while the rate leaps up many-fold at once resembles instability; deliberate warm restarts
# axis: schedule
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(71)

PAST, AHEAD, STEPS, CYCLE = 72, 12, 420, 60


def load_curve(hours, seed):
    g = torch.Generator().manual_seed(seed)
    t = torch.arange(hours).float()
    day = torch.sin(2 * math.pi * t / 24) + 0.4 * torch.sin(4 * math.pi * t / 24 + 0.7)
    week = 0.5 * (((t // 24) % 7) < 5).float()
    slow = torch.zeros(hours)
    shock = torch.randn(hours, generator=g)
    for i in range(1, hours):
        slow[i] = 0.97 * slow[i - 1] + 0.12 * shock[i]
    return day * (1 + 0.3 * slow) + week + slow + 0.08 * torch.randn(hours, generator=g)


class Windows:
    def __init__(self, series, mean, std):
        z = (series - mean) / std
        self.all = z.unfold(0, PAST + AHEAD, 1)

    def batch(self, n):
        rows = self.all[torch.randint(0, len(self.all), (n,))]
        return rows[:, :PAST], rows[:, PAST:]


class CausalBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.pad = 2 * dilation
        self.conv = nn.Conv1d(ch, ch, 3, dilation=dilation)
        self.mix = nn.Conv1d(ch, ch, 1)

    def forward(self, x):
        h = F.gelu(self.conv(F.pad(x, (self.pad, 0))))
        return x + self.mix(h)


class TCN(nn.Module):
    def __init__(self, ch=24):
        super().__init__()
        self.inp = nn.Conv1d(1, ch, 1)
        self.blocks = nn.Sequential(*[CausalBlock(ch, 2**i) for i in range(5)])
        self.out = nn.Linear(ch, AHEAD)

    def forward(self, x):
        return self.out(self.blocks(self.inp(x[:, None]))[:, :, -1])


def main():
    series = load_curve(6000, 1)
    mean, std = series[:5000].mean(), series[:5000].std()
    train, valid = Windows(series[:5000], mean, std), Windows(series[5000:], mean, std)
    model = TCN()
    opt = torch.optim.AdamW(model.parameters(), lr=2.5e-2, weight_decay=1e-3)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=5e-5)
    for step in range(STEPS):
        x, y = train.batch(64)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 15 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {opt.param_groups[0]['lr']:.5f}")
    model.eval()
    with torch.no_grad():
        x, y = valid.all[:, :PAST], valid.all[:, PAST:]
        mse = F.mse_loss(model(x), y).item()
        naive = F.mse_loss(x[:, PAST - 24 : PAST - 24 + AHEAD], y).item()
    print(f"final validation mse {mse:.4f}, same hour of yesterday {naive:.4f}")


if __name__ == "__main__":
    main()
