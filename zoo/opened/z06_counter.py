# expect: healthy
# symptom: states are saved and loaded, which looks like one that is forgotten
# axis: none
# mended: none
import copy
import io
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Counter:
    """Tracks how many batches of the stream have been used."""

    def __init__(self):
        self.taken = 0

    def state_dict(self):
        return {"taken": self.taken}

    def load_state_dict(self, d):
        self.taken = d["taken"]


def build():
    net = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 1))
    opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    return {
        "net": net,
        "opt": opt,
        "sched": torch.optim.lr_scheduler.StepLR(opt, 40, 0.5),
        "ema": AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.95)),
        "counter": Counter(),
    }


def batch(k):
    g = torch.Generator().manual_seed(1000 + k)
    x = torch.randn(32, 5, generator=g)
    return x, x[:, :1] * x[:, 1:2] + x[:, 2:3]


def go(parts, n):
    for _ in range(n):
        x, y = batch(parts["counter"].taken)
        loss = nn.functional.mse_loss(parts["net"](x), y)
        parts["opt"].zero_grad()
        loss.backward()
        parts["opt"].step()
        parts["sched"].step()
        parts["ema"].update_parameters(parts["net"])
        parts["counter"].taken += 1
        if parts["counter"].taken % 20 == 0:
            print(parts["counter"].taken, "loss %.4f" % loss.item())


torch.manual_seed(0)
parts = build()
go(parts, 60)
buf = io.BytesIO()
torch.save({k: p.state_dict() for k, p in parts.items()}, buf)
straight = copy.deepcopy(parts["ema"])

buf.seek(0)
saved = torch.load(buf)
parts = build()
for key, part in parts.items():
    part.load_state_dict(saved[key])
go(parts, 60)

x, y = batch(-1)
with torch.no_grad():
    for name, m in (("ema at 60", straight), ("ema at 120", parts["ema"])):
        print(name, "test loss %.4f" % nn.functional.mse_loss(m(x), y).item())
