# expect: sick
# symptom: after some 180 steps the loss stops improving for good and the weights no longer move; no error
# axis: precision
# cause: When the fp16 gradients overflow the batch is skipped with `continue` before scaler.update(), so the loss scale is never lowered after the first overflow, and every later step overflows and is skipped too.
# says: (scaler|loss.?scal|grad.?scal|scale).{0,250}(update|never (lower|reduc|decreas|shr[iu]nk|back|halv|drop|adjust)|not (lower|reduc|decreas|shr[iu]nk|backed|halv|adjust)|back.?off|stuck|stays|remains|(every|all).{0,40}skip)|skip.{0,200}(scaler|update\(\)|loss.?scale|scale)
# onset_step: 176
# fix: call scaler.update() on the skip path too
# mended: yes
"""Day-ahead electricity load forecasting, mixed precision, residual MLP with station embeddings."""

import argparse
import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)


def synth_load(n_station=12, days=220, seed=3):
    rng = np.random.default_rng(seed)
    h = np.arange(days * 24)
    out = []
    for _ in range(n_station):
        base, amp = rng.uniform(40, 120), rng.uniform(10, 40)
        phase = rng.uniform(-2, 2)
        weekend = 1 - rng.uniform(0.05, 0.35) * (((h // 24) % 7) >= 5)
        daily = np.sin(2 * np.pi * (h % 24 - phase) / 24) + rng.uniform(0.2, 0.7) * np.sin(
            4 * np.pi * (h % 24 - 1.7 * phase) / 24
        )
        season = 1 + 0.2 * np.sin(2 * np.pi * h / (24 * 90) + phase)
        ar = np.zeros(len(h))
        e = rng.normal(0, 1, len(h))
        for t in range(1, len(h)):
            ar[t] = 0.93 * ar[t - 1] + e[t]
        out.append((base + amp * daily * season + 0.5 * ar) * weekend)
    return np.stack(out).astype(np.float32)


class Windows(Dataset):
    def __init__(self, series, lo, hi, context=72, horizon=24):
        self.x, self.ctx, self.hor = series, context, horizon
        self.index = [(s, t) for s in range(series.shape[0]) for t in range(lo + context, hi - horizon, 5)]

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        s, t = self.index[i]
        past, fut = self.x[s, t - self.ctx : t], self.x[s, t : t + self.hor]
        cal = np.array([t % 24 / 24, (t // 24) % 7 / 7], np.float32)
        clock = np.concatenate([np.sin(2 * np.pi * cal), np.cos(2 * np.pi * cal)])
        return past, s, clock.astype(np.float32), fut


class ResBlock(nn.Module):
    def __init__(self, d, drop):
        super().__init__()
        self.f = nn.Sequential(nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(drop), nn.Linear(2 * d, d))

    def forward(self, x):
        return x + self.f(x)


class Forecaster(nn.Module):
    def __init__(self, n_station, ctx, hor, d=64, depth=3, drop=0.05):
        super().__init__()
        self.station = nn.Embedding(n_station, 16)
        self.inp = nn.Linear(ctx + 16 + 4, d)
        self.blocks = nn.Sequential(*[ResBlock(d, drop) for _ in range(depth)])
        self.out = nn.Linear(d, hor)

    def forward(self, past, s, clock):
        z = torch.cat([past, self.station(s), clock], -1)
        return self.out(self.blocks(self.inp(z)))


@torch.no_grad()
def validate(model, loader):
    model.eval()
    err, n = 0.0, 0
    for past, s, clock, fut in loader:
        with torch.autocast("cpu", dtype=torch.float16):
            pred = model(past, s, clock)
        err += (pred.float() - fut).abs().sum().item()
        n += fut.numel()
    model.train()
    return err / n


def grads_ok(params):
    return all(torch.isfinite(p.grad).all() for p in params if p.grad is not None)


def train(args):
    torch.manual_seed(args.seed)
    raw = synth_load()
    cut = 180 * 24
    mu, sd = raw[:, :cut].mean(1, keepdims=True), raw[:, :cut].std(1, keepdims=True)
    z = (raw - mu) / sd
    tr, va = Windows(z, 0, cut), Windows(z, cut - 72, z.shape[1])
    g = torch.Generator().manual_seed(args.seed)
    loader = DataLoader(tr, batch_size=64, shuffle=True, drop_last=True, generator=g)
    val_loader = DataLoader(va, batch_size=256)

    model = Forecaster(raw.shape[0], 72, 24)
    params = list(model.parameters())
    opt = torch.optim.AdamW(params, lr=args.lr, weight_decay=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**15, growth_interval=25)
    crit = nn.SmoothL1Loss()
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, args.steps)
    step = 0
    while step < args.steps:
        for past, s, clock, fut in loader:
            step += 1
            if step > args.steps:
                break
            with torch.autocast("cpu", dtype=torch.float16):
                loss = crit(model(past, s, clock).float(), fut)
            opt.zero_grad()
            scaler.scale(loss).backward()
            if step % 40 == 0:
                print(f"{step:5d} loss {loss.item():.4f}", flush=True)
            if step % 160 == 0:
                print(f"      val MAE {validate(model, val_loader):.4f}", flush=True)
            if not grads_ok(params):
                if os.environ.get("MENDED") == "1":
                    scaler.step(opt)
                    scaler.update()
                continue
            scaler.unscale_(opt)
            nn.utils.clip_grad_norm_(params, 1.0)
            scaler.step(opt)
            scaler.update()
            sched.step()
    print(f"final val MAE {validate(model, val_loader):.4f}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=720)
    ap.add_argument("--lr", type=float, default=1e-3)
    ap.add_argument("--seed", type=int, default=0)
    train(ap.parse_args())
