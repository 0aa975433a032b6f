# expect: sick
# symptom: right after the resume at step 350 the loss leaps up many times over although the weights were restored
# axis: precision
# cause: the checkpoint is stored in half precision, Adam's second moments underflow to zero in it, and the first updates after the resume are far too large
# says: underflow\w*|(half|fp16|float16|16.?bit|precision).{0,120}(checkpoint|state|moment|exp_avg|optimi|variance|\bsave|stor|resum)|(checkpoint|state|moment\w*|exp_avg\w*|optimi\w*|variance).{0,120}(half|fp16|float16|16.?bit|precision|zero|underflow|lost)|(zero\w*|lost).{0,40}(moment|exp_avg|variance|optimi\w* state|adam)
# onset_step: 351
# fix: store the optimizer's state in float32
# mended: MENDED=1
import os
from io import BytesIO

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
TASKS = ["price", "rating", "delay"]
UNIT = {"price": 1000, "rating": 5, "delay": 24}  # thousand euros, share of five stars, days


def orders(n=12000, seed=12):
    g = np.random.default_rng(seed)
    x = g.normal(size=(n, 12)).astype(np.float32)
    w = g.normal(size=(12, 3))
    h = np.tanh(x @ w / 2)
    y = {
        "price": 60 * h[:, 0] + 25 * x[:, 0] * x[:, 1] + g.normal(0, 4, n),
        "rating": 0.8 * h[:, 1] + 0.3 * x[:, 2] + g.normal(0, 0.2, n),
        "delay": 0.2 * h[:, 2] + g.normal(0, 0.05, n),
    }
    return torch.tensor(x), {k: torch.tensor(v / UNIT[k], dtype=torch.float32) for k, v in y.items()}


class MultiTask(nn.Module):
    def __init__(self, tasks, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.heads = nn.ModuleDict({t: nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 1)) for t in tasks})

    def forward(self, x):
        h = self.trunk(x)
        return {t: head(h).squeeze(1) for t, head in self.heads.items()}


def shrink(value):
    """Checkpoints of all jobs share a small disk."""
    if isinstance(value, dict):
        return {k: shrink(v) for k, v in value.items()}
    if isinstance(value, list):
        return [shrink(v) for v in value]
    if torch.is_tensor(value) and value.is_floating_point() and value.numel() > 1:
        return value.half()
    return value


def pack(state):
    buffer = BytesIO()
    small = {k: v if k == "optimizer" and os.environ.get("MENDED") == "1" else shrink(v) for k, v in state.items()}
    torch.save(small, buffer)
    return buffer.getvalue()


class Job:
    """One job on the cluster: it ends after its share of steps and leaves a checkpoint."""

    def __init__(self, tasks, checkpoint=None):
        self.model = MultiTask(tasks)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=4e-3)
        self.step = 0
        if checkpoint is not None:
            checkpoint = torch.load(BytesIO(checkpoint))
            self.model.load_state_dict(checkpoint["model"])
            self.opt.load_state_dict(checkpoint["optimizer"])
            self.step = checkpoint["step"]
            print(f"resumed at step {self.step}")

    def run(self, x, y, until):
        while self.step < until:
            b = torch.randint(0, len(x), (128,))
            out = self.model(x[b])
            parts = {t: (out[t] - y[t][b]).pow(2).mean() for t in out}
            loss = sum(parts.values())
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.step += 1
            if self.step % 25 == 0 or 350 < self.step < 360:
                detail = " ".join(f"{t} {v.item():.2e}" for t, v in sorted(parts.items()))
                print(f"step {self.step} loss {loss.item():.3e} ({detail})")
        return pack({"model": self.model.state_dict(), "optimizer": self.opt.state_dict(), "step": self.step})


def main():
    torch.manual_seed(12)
    x, y = orders()
    checkpoint = Job(TASKS).run(x, y, until=350)
    Job(TASKS, checkpoint).run(x, y, until=560)


if __name__ == "__main__":
    main()
