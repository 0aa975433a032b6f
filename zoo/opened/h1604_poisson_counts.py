# expect: healthy
# symptom: the loss is a huge negative number (hundred thousands), noisy from batch to batch, with gradient norms in the thousands
# axis: none
# mended: none
import os
import time
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(34)

N_STATION, BATCH, STEPS = 60, 768, 600


def trips(n, g):
    """Hourly rentals per station: weekly rhythm, weather, a few very busy stations."""
    st = torch.randint(0, N_STATION, (n,), generator=g)
    hour = torch.randint(0, 168, (n,), generator=g)
    temp, rain = torch.randn(n, generator=g), (torch.rand(n, generator=g) < 0.2).float()
    size = torch.linspace(0.5, 5.5, N_STATION)[torch.randperm(N_STATION, generator=g)]
    day = torch.sin(2 * torch.pi * (hour % 24) / 24 - 2.0) + 0.4 * torch.cos(4 * torch.pi * (hour % 24) / 24)
    rate = size[st] + 0.8 * day + 0.2 * temp - 0.7 * rain + 0.3 * rain * day
    return st, hour, torch.stack([temp, rain], 1), torch.poisson(rate.exp(), generator=g)


class CountNet(nn.Module):
    def __init__(self, d=192):
        super().__init__()
        self.st, self.hour = nn.Embedding(N_STATION, 32), nn.Embedding(168, 32)
        self.net = nn.Sequential(nn.Linear(66, d), nn.SiLU(), nn.Linear(d, d), nn.SiLU(), nn.Linear(d, 1))
        nn.init.constant_(self.net[-1].bias, 3.0)

    def forward(self, st, hour, w):
        return self.net(torch.cat([self.st(st), self.hour(hour), w], 1)).squeeze(1)


def deviance(logr, y):
    term = torch.where(y > 0, y * (y.clamp(min=1).log() - logr), torch.zeros_like(y))
    return 2 * (term - (y - logr.exp())).mean()


def main():
    g = torch.Generator().manual_seed(1)
    data = trips(60000, g)
    train, held = [t[:56000] for t in data], [t[56000:] for t in data]
    model = CountNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=STEPS, pct_start=0.1)
    loss_fn = nn.PoissonNLLLoss(log_input=True, full=False, reduction="sum")
    t0 = time.time()
    for step in range(STEPS):
        i = torch.randint(0, 56000, (BATCH,), generator=g)
        st, hour, w, y = (t[i] for t in train)
        loss = loss_fn(model(st, hour, w), y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), float("inf"))
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.1f} grad norm {norm.item():.0f}", flush=True)
        if (step + 1) % 150 == 0:
            with torch.no_grad():
                print(
                    f"  held-out deviance {deviance(model(*held[:3]), held[3]).item():.3f} ({time.time() - t0:.1f}s)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
