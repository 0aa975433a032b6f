# expect: sick
# symptom: when the mixed precision phase begins the training loss stops going down and stays flat, while the validation loss (full precision) climbs without bound
# axis: precision
# cause: One autocast context stays open around the whole second phase, so its weight cache keeps serving the bf16 copies of the weights cast on the first step and the forward pass never sees the optimizer's updates.
# says: autocast.*(cache|cached|caching|stale|whole (loop|phase)|entire|around the|outside the (step )?loop|never (sees|refresh)|outlive|once)|(stale|cached|outdated|\bold\b).*(bf16|bfloat16|low[- ]precision|half|cast|copy|copies).*weight|(stale|cached|outdated).*weight.*(bf16|bfloat16|cast|autocast|copy|copies)
# onset_step: 202
# fix: enter autocast anew around the forward pass of each step (or pass cache_enabled=False)
# mended: yes
"""Day-ahead electricity load: patch transformer on two weeks of history.

Two phases: a short one in full precision at constant rate, then the long
one in mixed precision with a cosine tail.
"""

import contextlib
import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(3)

HIST, HORIZON, PATCH = 24 * 14, 24, 24


def make_feeders(n_feeders=40, days=240):
    g = torch.Generator().manual_seed(5)
    t = torch.arange(days * 24).float()
    hour, dow = t % 24, (t // 24) % 7
    out = []
    for _ in range(n_feeders):
        p1, p2 = torch.rand(2, generator=g) * 6
        daily = torch.exp(-(((hour - 8 - p1) / 3) ** 2)) + 1.3 * torch.exp(-(((hour - 18 - p2 / 3) / 2.5) ** 2))
        week = 1 - (0.2 + 0.4 * torch.rand(1, generator=g)) * (dow >= 5).float()
        weather = torch.zeros(days)
        for d in range(1, days):
            weather[d] = 0.85 * weather[d - 1] + 0.25 * torch.randn(1, generator=g).item()
        w = weather.repeat_interleave(24)
        noise = 0.08 * torch.randn(len(t), generator=g)
        out.append(daily * week * (1 + 0.35 * w) + 0.2 * w + noise)
    s = torch.stack(out)
    return (s - s.mean(1, keepdim=True)) / s.std(1, keepdim=True)


SERIES = make_feeders()
SPLIT = 24 * 190
gen = torch.Generator().manual_seed(7)


def windows(n, lo, hi, g):
    f = torch.randint(0, SERIES.shape[0], (n,), generator=g)
    start = torch.randint(lo // 24, (hi - HIST - HORIZON) // 24, (n,), generator=g) * 24
    idx = start[:, None] + torch.arange(HIST + HORIZON)[None]
    w = SERIES[f[:, None], idx]
    return w[:, :HIST], w[:, HIST:]


class PatchFormer(nn.Module):
    def __init__(self, d=64, heads=4, layers=2):
        super().__init__()
        self.embed = nn.Linear(PATCH, d)
        self.pos = nn.Parameter(torch.randn(1, HIST // PATCH, d) * 0.02)
        layer = nn.TransformerEncoderLayer(d, heads, 2 * d, dropout=0.05, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(d), nn.Flatten(), nn.Linear(d * (HIST // PATCH), HORIZON))

    def forward(self, x):
        h = self.embed(x.unflatten(1, (-1, PATCH))) + self.pos
        return self.head(self.enc(h))


def amp():
    return torch.autocast("cpu", dtype=torch.bfloat16)


@torch.no_grad()
def validate(model):
    model.eval()
    x, y = windows(400, SPLIT, SERIES.shape[1], torch.Generator().manual_seed(99))
    with torch.autocast("cpu", enabled=False):
        loss = F.mse_loss(model(x), y).item()
    model.train()
    return loss


def run_phase(model, opt, first, last, lr_at, mixed):
    outer = amp if mixed and not MENDED else contextlib.nullcontext
    inner = amp if mixed and MENDED else contextlib.nullcontext
    running = None
    with outer():
        for step in range(first, last + 1):
            for group in opt.param_groups:
                group["lr"] = lr_at(step)
            x, y = windows(64, 0, SPLIT, gen)
            with inner():
                pred = model(x)
            loss = F.mse_loss(pred.float(), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
            if step % 20 == 0:
                print(f"[{step:4d}] train mse {running:.4f}  lr {lr_at(step):.2e}", flush=True)
            if step % 100 == 0:
                print(f"[{step:4d}] val mse {validate(model):.4f}", flush=True)


def main():
    model = PatchFormer()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    total, switch = 700, 200
    run_phase(model, opt, 1, switch, lambda s: 3e-4 * min(1.0, s / 50), mixed=False)
    run_phase(
        model,
        opt,
        switch + 1,
        total,
        lambda s: 3e-4 * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * (s - switch) / (total - switch)))),
        mixed=True,
    )
    print(f"final val mse {validate(model):.4f}")


if __name__ == "__main__":
    main()
