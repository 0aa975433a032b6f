# expect: sick
# symptom: the interpolation error falls steadily until the loss turns NaN in the middle of training
# axis: model
# cause: The edge softmax subtracts the global maximum of all scores instead of each query's own, so for a query with only distant stations every exponential underflows to zero and the normalisation becomes 0/0.
# says: (?=.*(softmax|attention|normali[sz]|weights?|kernel|\bexp))(?=.*(global|whole|entire|overall|batch[- ]?wide|all (the )?(scores|edges|queries)|single max|per[- ](segment|query|group|node|target|destination|row)|(its|their|each \w+('s)?) own|segment|underflow|0 ?/ ?0|zero (by|over) zero|divi\w+ by (a )?zero|(denominator|sum|normali[sz]er)\w* (\w+ ){0,3}zero)).*(max|peak|underflow|0 ?/ ?0|zero (by|over) zero|denominator|divi\w+ by (a )?zero)
# onset_step: 155
# fix: subtract the per-query (per-segment) maximum before the exponential
# mended: yes
"""Learned spatial interpolation of a soil property.

Stations crowd around towns and are thin in the countryside.  Each query attends
to its nearest stations with several Gaussian kernels whose widths are learned,
plus a learned trust in every station's instrument type.
"""

import os
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(8)
rng = np.random.default_rng(8)
PER_QUERY_MAX = os.environ.get("MENDED") == "1"

# ---------------------------------------------------------------- geography
towns = rng.uniform(1, 9, (12, 2))
stations = np.concatenate(
    [
        towns[rng.integers(0, 12, 500)] + rng.normal(0, 0.35, (500, 2)),
        rng.uniform(0, 10, (90, 2)),
    ]
).astype(np.float32)
kinds = rng.integers(0, 4, len(stations))
bias = np.array([0.0, 0.15, -0.2, 0.05])
noise = np.array([0.03, 0.05, 0.05, 0.6])
units = rng.uniform(0, 10, (120, 2))
units[:60] = towns[rng.integers(0, 12, 60)] + rng.normal(0, 0.4, (60, 2))
unit_value = rng.normal(size=120)


def field(xy):
    d = ((xy[:, None] - units[None]) ** 2).sum(-1)
    return unit_value[d.argmin(1)] + 0.3 * np.sin(xy[:, 0])


reading = field(stations) + bias[kinds] + rng.normal(size=len(stations)) * noise[kinds]

st_xy = torch.tensor(stations)
st_kind = torch.tensor(kinds)
st_val = torch.tensor(reading, dtype=torch.float32)


def draw_queries(n):
    rural = rng.random(n) < 0.06
    xy = towns[rng.integers(0, 12, n)] + rng.normal(0, 0.35, (n, 2))
    xy[rural] = rng.uniform(-0.3, 10.3, (rural.sum(), 2))
    return torch.tensor(xy, dtype=torch.float32), torch.tensor(field(xy), dtype=torch.float32)


def edges(xy, k=12):
    d = torch.cdist(xy, st_xy)
    near = d.topk(k, largest=False)
    dst = torch.arange(len(xy)).repeat_interleave(k)
    return near.indices.reshape(-1), dst, near.values.reshape(-1)


# ------------------------------------------------------------------- model
def edge_softmax(score, dst, n):
    if PER_QUERY_MAX:
        index = dst[:, None].expand_as(score)
        peak = torch.full((n, score.shape[1]), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")[dst]
    else:
        peak = score.detach().max()
    e = torch.exp(score - peak)
    z = torch.zeros(n, score.shape[1]).index_add(0, dst, e)
    return e / z[dst]


class Interpolator(nn.Module):
    def __init__(self, heads=6, dim=16):
        super().__init__()
        self.log_sharp = nn.Parameter(torch.linspace(-1.5, 1.0, heads))
        self.trust = nn.Embedding(4, heads)
        self.offset = nn.Embedding(4, heads)
        nn.init.zeros_(self.trust.weight)
        nn.init.zeros_(self.offset.weight)
        self.mix = nn.Sequential(nn.Linear(3 * heads, 48), nn.GELU(), nn.Linear(48, heads))
        self.heads = heads

    def forward(self, xy):
        src, dst, dist = edges(xy)
        n = len(xy)
        kind = st_kind[src]
        score = self.trust(kind) - self.log_sharp.exp() * dist[:, None] ** 2
        w = edge_softmax(score, dst, n)
        v = st_val[src][:, None] - self.offset(kind)
        mean = torch.zeros(n, self.heads).index_add(0, dst, w * v)
        var = torch.zeros(n, self.heads).index_add(0, dst, w * (v - mean[dst]) ** 2)
        reach = torch.zeros(n, self.heads).index_add(0, dst, w * dist[:, None])
        gate = self.mix(torch.cat([mean, var, reach], 1)).softmax(1)
        return (gate * mean).sum(1)


net = Interpolator()
opt = torch.optim.Adam(
    [
        {"params": [net.log_sharp], "lr": 1.2e-2},
        {"params": [p for n, p in net.named_parameters() if n != "log_sharp"], "lr": 4e-3},
    ]
)
STEPS = 500
cool = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: 1.0 if s < 380 else 0.2)
check_xy, check_y = draw_queries(800)
trace = []
for step in range(1, STEPS + 1):
    xy, y = draw_queries(192)
    loss = F.smooth_l1_loss(net(xy), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    cool.step()
    trace.append(loss.item())
    if step % 25 == 0:
        with torch.no_grad():
            rmse = (net(check_xy) - check_y).pow(2).mean().sqrt().item()
        print(
            f"{step:4d} | train {np.mean(trace[-25:]):.4f} | check rmse {rmse:.4f} | "
            f"sharpest kernel {net.log_sharp.exp().max().item():.1f}"
        )
