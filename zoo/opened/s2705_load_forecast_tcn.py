# expect: sick
# symptom: smooth training up to step 160, then within some 30 steps the loss rises and becomes NaN
# axis: loss
# cause: when gradient accumulation grows to 8 micro-batches the loss is not divided by the number of accumulation steps, so the summed gradient (and effective learning rate of SGD) becomes eight times too large
# says: (not|never|n't|miss\w*|forg\w*|without|lack\w*|fail\w*|no|omit\w*|instead of|rather than).{0,100}(divid|normali[sz]|averag|scal(ed?|ing)|mean).{0,200}(accum|micro-?batch)|(accum|micro-?batch).{0,220}(not|never|n't|miss\w*|forg\w*|without|lack\w*|fail\w*|no|omit\w*|instead of|rather than).{0,80}(divid|normali[sz]|averag|scal(ed?|ing)|mean|1/accum)|(accum|micro-?batch).{0,200}(summ?(ed|s|ing)?\b|8x|8 ?times|eight times|8-fold|eightfold|times (too )?larger)
# onset_step: 161
# fix: divide each micro-batch loss by the current number of accumulation steps before backward
# mended: yes
"""Day-ahead electricity load forecasting with a dilated causal CNN.

Input: one week of hourly load and temperature.  Output: the next 24 hours.
The effective batch is small at first (fast early progress) and is enlarged
later by accumulating micro-batches.
"""

import os
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
SEED = 5
HISTORY, HORIZON = 96, 24
MICRO_BATCH = 16
ACCUMULATION = {0: 1, 160: 8}  # optimizer step -> micro-batches per step
TOTAL_STEPS = 280
LR, MOMENTUM = 0.2, 0.9


def simulate_region(hours=24 * 500, seed=SEED):
    rng = np.random.default_rng(seed)
    t = np.arange(hours)
    season = 10 * np.sin(2 * np.pi * t / (24 * 365) - 1.4)
    weather = np.zeros(hours)
    for i in range(1, hours):
        weather[i] = 0.985 * weather[i - 1] + rng.normal(0, 0.6)
    temp = 12 + season + 4 * np.sin(2 * np.pi * (t % 24 - 9) / 24) + weather
    hour = t % 24
    weekday = (t // 24) % 7
    shape = 0.9 * np.exp(-0.5 * ((hour - 8) / 2.0) ** 2) + 1.3 * np.exp(-0.5 * ((hour - 19) / 2.5) ** 2)
    heating = 0.07 * np.clip(16 - temp, 0, None)
    cooling = 0.09 * np.clip(temp - 22, 0, None)
    load = 5 + shape * np.where(weekday >= 5, 0.6, 1.0) + heating + cooling
    noise = np.zeros(hours)
    for i in range(1, hours):
        noise[i] = 0.8 * noise[i - 1] + rng.normal(0, 0.05)
    return np.stack([load + noise, temp], axis=0).astype(np.float32)


class CausalConv(nn.Module):
    def __init__(self, cin, cout, dilation):
        super().__init__()
        self.pad = nn.ConstantPad1d((2 * dilation, 0), 0.0)
        self.conv = nn.Conv1d(cin, cout, 3, dilation=dilation)
        self.proj = nn.Conv1d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x):
        return torch.relu(self.conv(self.pad(x))) + self.proj(x)


class LoadForecaster(nn.Module):
    def __init__(self, channels=32, calendar=31):
        super().__init__()
        self.tcn = nn.Sequential(*[CausalConv(2 if i == 0 else channels, channels, 2**i) for i in range(5)])
        self.head = nn.Sequential(nn.Linear(channels + calendar, 64), nn.ReLU(), nn.Linear(64, HORIZON))

    def forward(self, series, calendar):
        return self.head(torch.cat([self.tcn(series)[..., -1], calendar], dim=-1))


class Windows:
    def __init__(self, series, start, stop):
        self.series = torch.from_numpy(series)
        self.start, self.stop = start, stop

    def at(self, index):
        xs = torch.stack([self.series[:, i : i + HISTORY] for i in index])
        ys = torch.stack([self.series[0, i + HISTORY : i + HISTORY + HORIZON] for i in index])
        now = torch.tensor([i + HISTORY for i in index])
        hour = nn.functional.one_hot(now % 24, 24)
        day = nn.functional.one_hot((now // 24) % 7, 7)
        return xs, torch.cat([hour, day], dim=-1).float(), ys

    def random(self, rng, n):
        return self.at(rng.integers(self.start, self.stop - HISTORY - HORIZON, n))


def accumulation_at(step):
    return max((s, k) for s, k in ACCUMULATION.items() if s <= step)[1]


def main():
    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED + 1)
    raw = simulate_region()
    cut = int(raw.shape[1] * 0.85)
    mu, sd = raw[:, :cut].mean(1, keepdims=True), raw[:, :cut].std(1, keepdims=True)
    scaled = (raw - mu) / sd
    train, test = Windows(scaled, 0, cut), Windows(scaled, cut, raw.shape[1])

    net = LoadForecaster()
    optimizer = torch.optim.SGD(net.parameters(), lr=LR, momentum=MOMENTUM)
    criterion = nn.MSELoss()
    mended = os.environ.get("MENDED") == "1"

    optimizer.zero_grad()
    for step in range(TOTAL_STEPS):
        accum = accumulation_at(step)
        shown = 0.0
        for _ in range(accum):
            series, calendar, target = train.random(rng, MICRO_BATCH)
            loss = criterion(net(series, calendar), target)
            shown += loss.item() / accum
            if mended:
                loss = loss / accum
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if (step + 1) % 10 == 0:
            print(f"[{step + 1:3d}/{TOTAL_STEPS}] batch {accum * MICRO_BATCH:3d}  mse {shown:.4f}")

    with torch.no_grad():
        index = range(test.start, test.stop - HISTORY - HORIZON, 5)
        series, calendar, target = test.at(index)
        err = (net(series, calendar) - target).abs().mean() * float(sd[0, 0])
        naive = (series[:, 0, -24:] - target).abs().mean() * float(sd[0, 0])
    print(f"test MAE {err:.3f} GW   (same hour yesterday: {naive:.3f} GW)")


if __name__ == "__main__":
    main()
