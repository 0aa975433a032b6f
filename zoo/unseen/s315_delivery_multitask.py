# expect: sick
# symptom: right after the resume at step 350 the loss shoots up by orders of magnitude although the weights were restored
# axis: optimizer
# cause: on resume the parameters are listed in another order than at saving, so the optimizer's moments are loaded into the wrong heads
# says: (optimi[sz]er|adam\w*|moment\w*|exp_avg\w*|\bstate).{0,120}(wrong|other|another|different|mis-?(map|match|assign|align|order)|swap|permut|order|position|not belong|belongs? to)|(param\w*|head|group)s?.{0,60}(order|position|permut|swap).{0,80}(optimi|moment|state|resum|load|restor|checkpoint)|(wrong|mis-?(match|map)\w*|swapp?\w*|permut\w*|stale).{0,40}(optimi[sz]er|moment|adam|state)
# onset_step: 351
# fix: list the tasks in the same order on resume as at saving
# mended: MENDED=1
import copy
import os

import numpy as np
import torch
from torch import nn

torch.set_num_threads(1)
TASKS = ["price", "rating", "delay"]


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
    return torch.tensor(x), {k: torch.tensor(v, dtype=torch.float32) for k, v in y.items()}


class MultiTask(nn.Module):
    def __init__(self, tasks, width=64):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(12, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU())
        self.heads = nn.ModuleDict({t: nn.Sequential(nn.Linear(width, 32), nn.SiLU(), nn.Linear(32, 1)) for t in tasks})

    def forward(self, x):
        h = self.trunk(x)
        return {t: head(h).squeeze(1) for t, head in self.heads.items()}


class Session:
    """One job on the cluster: it ends after its share of steps and leaves a checkpoint."""

    def __init__(self, tasks, checkpoint=None):
        self.model = MultiTask(tasks)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.step = 0
        if checkpoint is not None:
            self.model.load_state_dict(checkpoint["model"])
            self.opt.load_state_dict(checkpoint["optimizer"])
            self.step = checkpoint["step"]
            print(f"resumed at step {self.step} with tasks {list(self.model.heads)}")

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
                detail = " ".join(f"{t} {v.item():.4f}" for t, v in sorted(parts.items()))
                print(f"step {self.step} loss {loss.item():.3f} ({detail})")
        state = {"model": self.model.state_dict(), "optimizer": self.opt.state_dict(), "step": self.step}
        return copy.deepcopy(state)


def main():
    torch.manual_seed(12)
    x, y = orders()
    checkpoint = Session(TASKS).run(x, y, until=350)
    found = [k.split(".")[1] for k in checkpoint["model"] if k.startswith("heads.")]
    tasks = list(dict.fromkeys(found)) if os.environ.get("MENDED") == "1" else sorted(set(found))
    Session(tasks, checkpoint).run(x, y, until=560)


if __name__ == "__main__":
    main()
