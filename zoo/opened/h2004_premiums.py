# expect: healthy
# symptom: negative likelihood loss, a run stopped and resumed in the middle into a fresh model, micro-batches with an optimizer step only every fourth
# axis: none
# mended: none
import io
import math
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import nn


@dataclass
class Settings:
    lr: float = 3e-3
    micro: int = 64
    accumulate: int = 4
    updates: int = 400
    stop_at: int = 190
    components: int = 3
    n_features: int = 10


def portfolio(n, d, seed):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d)).astype(np.float32)
    kind = rng.random(n) < 1 / (1 + np.exp(-2 * x[:, 0]))
    mean = np.where(kind, 0.12 + 0.05 * np.tanh(x[:, 1]), -0.08 + 0.04 * x[:, 2] * (x[:, 3] > 0))
    sd = np.where(kind, 0.01 * np.exp(0.3 * x[:, 4]), 0.02)
    y = mean + sd * rng.standard_normal(n)
    return torch.from_numpy(x), torch.tensor(y, dtype=torch.float32)


class MixtureNet(nn.Module):
    def __init__(self, d, k, hidden=96):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(d, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.logits = nn.Linear(hidden, k)
        self.means = nn.Linear(hidden, k)
        self.scales = nn.Linear(hidden, k)
        with torch.no_grad():
            self.means.weight.mul_(0.1)
            self.means.bias.copy_(torch.linspace(-0.15, 0.15, k))
            self.scales.bias.fill_(-2.0)

    def nll(self, x, y):
        h = self.trunk(x)
        logw = torch.log_softmax(self.logits(h), 1)
        log_sd = self.scales(h).clamp(-6.0, 1.0)
        z = (y[:, None] - self.means(h)) * torch.exp(-log_sd)
        logp = -0.5 * z**2 - log_sd - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(logw + logp, 1)


class Run:
    def __init__(self, cfg, x, y):
        self.cfg, self.x, self.y = cfg, x, y
        self.model = MixtureNet(cfg.n_features, cfg.components)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=cfg.lr, weight_decay=1e-4)
        self.sched = torch.optim.lr_scheduler.CosineAnnealingLR(self.opt, cfg.updates)
        self.gen = torch.Generator().manual_seed(9)
        self.update = 0

    def save(self):
        buf = io.BytesIO()
        torch.save(
            {
                "model": self.model.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "gen": self.gen.get_state(),
                "update": self.update,
                "cfg": asdict(self.cfg),
            },
            buf,
        )
        return buf.getvalue()

    @classmethod
    def resume(cls, blob, x, y):
        state = torch.load(io.BytesIO(blob), weights_only=True)
        run = cls(Settings(**state["cfg"]), x, y)
        run.model.load_state_dict(state["model"])
        run.opt.load_state_dict(state["opt"])
        run.sched.load_state_dict(state["sched"])
        run.gen.set_state(state["gen"])
        run.update = state["update"]
        return run

    def train_until(self, last):
        c = self.cfg
        while self.update < last:
            self.opt.zero_grad()
            total = 0.0
            for _ in range(c.accumulate):
                idx = torch.randint(0, len(self.x), (c.micro,), generator=self.gen)
                loss = self.model.nll(self.x[idx], self.y[idx]).mean() / c.accumulate
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            self.update += 1
            if self.update % 10 == 0:
                print(f"update {self.update} loss {total:.4f}")

    @torch.no_grad()
    def score(self, x, y):
        return self.model.nll(x, y).mean().item()


def main():
    torch.manual_seed(2)
    torch.set_num_threads(1)
    cfg = Settings()
    x, y = portfolio(22000, cfg.n_features, 3)
    xt, yt = x[20000:], y[20000:]
    x, y = x[:20000], y[:20000]
    run = Run(cfg, x, y)
    run.train_until(cfg.stop_at)
    print(f"preempted at {run.update}, test nll {run.score(xt, yt):.4f}")
    blob = run.save()
    del run
    run = Run.resume(blob, x, y)
    print(f"resumed at {run.update}, test nll {run.score(xt, yt):.4f}")
    run.train_until(cfg.updates)
    print(f"finished, test nll {run.score(xt, yt):.4f}")


if __name__ == "__main__":
    main()
