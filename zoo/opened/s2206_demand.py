# expect: sick
# symptom: the loss sinks a little, then sits on a plateau far above the noise floor; nothing explodes, more steps do not help
# axis: data
# cause: Unix timestamps (about 1.7e9) are cast to float32 before the phase of the cycles is computed; float32 resolves only 128 s there, so the short-cycle features are rounded to wrong phases
# says: (float32|fp32|single.precision|32.?bit|precision|resol\w+|round\w*|quanti[sz]\w*|mantissa|cast\w*).{0,220}(time.?stamps?|epoch|unix|clock|seconds|phase|1\.7e9|\btimes?\b)|(time.?stamps?|epoch|unix|clock|seconds|phase|1\.7e9|\btimes?\b).{0,220}(float32|fp32|single.precision|32.?bit|precision|resol\w+|round\w*|quanti[sz]\w*|mantissa)
# onset_step: 1
# fix: subtract the start time (or stay in float64) before casting to float32
# mended: yes
"""Compressor power from irregular telemetry.

Each reading has a Unix time stamp, a site, outside temperature and the metered load.
Defrost and pump cycles of fixed length plus a daily profile drive the load.
"""

import os
import time

import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
rng = np.random.default_rng(2024)
torch.manual_seed(2024)

START = 1_704_067_200  # 2024-01-01 00:00 UTC
DAY, PUMP, DEFROST = 86_400.0, 210.0, 97.0
N_SITES, N_ROWS = 12, 40_000


def telemetry():
    stamp = np.sort(START + rng.integers(0, 60 * int(DAY), N_ROWS))
    site = rng.integers(0, N_SITES, N_ROWS)
    temp = 8 + 6 * np.sin(2 * np.pi * (stamp % int(DAY)) / DAY - 1.8) + rng.normal(0, 1.5, N_ROWS)
    base = rng.uniform(3, 6, N_SITES)[site]
    gain = rng.uniform(0.6, 1.4, N_SITES)[site]
    pump = 1.6 * np.tanh(3 * np.sin(2 * np.pi * (stamp - START) / PUMP))
    defrost = 1.2 * np.maximum(0, np.cos(2 * np.pi * (stamp - START) / DEFROST)) ** 2
    load = base + gain * (pump + defrost) + 0.12 * temp + rng.normal(0, 0.2, N_ROWS)
    return stamp, site, temp, load


def cyclic(t, periods):
    cols = []
    for p in periods:
        for k in (1, 2, 3):
            angle = 2 * np.pi * k * torch.remainder(t, p) / p
            cols += [torch.sin(angle), torch.cos(angle)]
    return torch.stack(cols, dim=1)


def design(stamp, temp, mean, std):
    if os.environ.get("MENDED") == "1":
        stamp = stamp - START
    t = torch.tensor(stamp, dtype=torch.float32)
    trend = (t - t[0]) / (60 * DAY)
    x = torch.tensor((temp - mean) / std, dtype=torch.float32)
    return torch.cat([cyclic(t, (DAY, PUMP, DEFROST)), trend[:, None], x[:, None]], dim=1)


class LoadModel(nn.Module):
    def __init__(self, n_feat):
        super().__init__()
        self.site = nn.Embedding(N_SITES, 8)
        self.stem = nn.Linear(n_feat + 8, 128)
        self.hidden = nn.ModuleList([nn.Linear(128, 128) for _ in range(3)])
        self.norms = nn.ModuleList([nn.LayerNorm(128) for _ in range(3)])
        self.mean_head = nn.Linear(128, 1)
        self.log_scale = nn.Parameter(torch.zeros(N_SITES))

    def forward(self, feats, site):
        h = self.stem(torch.cat([feats, self.site(site)], 1))
        for lin, norm in zip(self.hidden, self.norms):
            h = h + torch.nn.functional.silu(lin(norm(h)))
        return self.mean_head(h).squeeze(1), self.log_scale[site]


def gaussian_nll(mu, log_s, y):
    return (log_s + 0.5 * ((y - mu) / log_s.exp()) ** 2).mean()


def main():
    tic = time.time()
    stamp, site, temp, load = telemetry()
    perm = rng.permutation(N_ROWS)
    tr, va = perm[:34_000], perm[34_000:]
    feats = design(stamp, temp, temp[tr].mean(), temp[tr].std())
    site_t = torch.from_numpy(site)
    y = torch.tensor((load - load[tr].mean()) / load[tr].std(), dtype=torch.float32)
    scale = load[tr].std()

    model = LoadModel(feats.shape[1])
    opt = torch.optim.NAdam(model.parameters(), lr=1.5e-3)
    steps, bs = 800, 512
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=steps)
    tr_t, va_t = torch.from_numpy(tr), torch.from_numpy(va)

    for step in range(1, steps + 1):
        idx = tr_t[torch.randint(len(tr_t), (bs,))]
        mu, log_s = model(feats[idx], site_t[idx])
        loss = gaussian_nll(mu, log_s, y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 40 == 0:
            print(f"{step:5d}  nll {loss.item():+.4f}")
        if step % 200 == 0:
            model.eval()
            with torch.no_grad():
                mu, _ = model(feats[va_t], site_t[va_t])
                rmse = (mu - y[va_t]).pow(2).mean().sqrt().item() * scale
            model.train()
            print(f"{step:5d}  validation RMSE {rmse:.3f} kW")
    print(f"elapsed {time.time() - tic:.1f}s")


if __name__ == "__main__":
    main()
