# expect: healthy
# symptom: the training loss jumps up several times (curriculum over length, scheduled sampling feeds the model its own outputs)
# axis: none
# mended: none
"""GRU encoder-decoder with attention: running sums modulo 10, curriculum over sequence length."""

import random
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

BASE, BOS = 10, 10


@dataclass
class Plan:
    stages: list = field(default_factory=lambda: [(3, 150), (5, 170), (8, 330)])
    batch: int = 64
    lr: float = 4e-3
    rewarm: int = 15
    max_own: float = 0.3
    hidden: int = 64


def make_batch(n, length, rng):
    x = torch.tensor([[rng.randrange(BASE) for _ in range(length)] for _ in range(n)])
    return x, x.cumsum(1) % BASE


class SumNet(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.src = nn.Embedding(BASE, hidden)
        self.tgt = nn.Embedding(BASE + 1, hidden)
        self.enc = nn.GRU(hidden, hidden // 2, batch_first=True, bidirectional=True)
        self.cell = nn.GRUCell(2 * hidden, hidden)
        self.where = nn.Linear(hidden, hidden)
        self.out = nn.Sequential(nn.Linear(2 * hidden, hidden), nn.Tanh(), nn.Linear(hidden, BASE))
        self.init = nn.Linear(hidden, hidden)

    def step(self, tok, h, ctx, mem):
        h = self.cell(torch.cat([self.tgt(tok), ctx], 1), h)
        att = torch.softmax((mem @ self.where(h)[:, :, None]).squeeze(2) / mem.size(2) ** 0.5, 1)
        ctx = (att[:, :, None] * mem).sum(1)
        return self.out(torch.cat([h, ctx], 1)), h, ctx

    def forward(self, x, y=None, own=0.0, rng=None):
        mem, _ = self.enc(self.src(x))
        h = torch.tanh(self.init(mem.mean(1)))
        ctx = mem[:, 0]
        tok = torch.full((len(x),), BOS)
        logits = []
        for t in range(x.size(1)):
            o, h, ctx = self.step(tok, h, ctx, mem)
            logits.append(o)
            # one coin for the whole batch decides whose token comes next
            if y is None or (own and rng.random() < own):
                tok = o.detach().argmax(1)
            else:
                tok = y[:, t]
        return torch.stack(logits, 1)


@torch.no_grad()
def evaluate(model, length, seed=77):
    model.eval()
    x, y = make_batch(256, length, random.Random(seed))
    pred = model(x).argmax(-1)
    model.train()
    return (pred == y).float().mean().item(), (pred == y).all(1).float().mean().item()


def main():
    torch.manual_seed(4)
    rng = random.Random(4)
    plan = Plan()
    model = SumNet(plan.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=plan.lr)
    step = 0
    for stage, (length, steps) in enumerate(plan.stages):
        # moments belong to the previous length; begin each stage with fresh ones and a short warm-up
        opt.state.clear()
        print(f"--- stage {stage}: length {length}")
        for k in range(steps):
            frac = k / steps
            lr = plan.lr * min(1.0, (k + 1) / plan.rewarm) * (1 - 0.9 * frac)
            for g in opt.param_groups:
                g["lr"] = lr
            own = plan.max_own * frac
            # a quarter of the batches replays an earlier length
            n = length if stage == 0 or rng.random() > 0.25 else plan.stages[rng.randrange(stage)][0]
            x, y = make_batch(plan.batch, n, rng)
            loss = F.cross_entropy(model(x, y, own, rng).flatten(0, 1), y.flatten())
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            if step % 25 == 0:
                print(f"step {step:4d} length {n} own {own:.2f} loss {loss.item():.4f}")
            step += 1
        for test_length, _ in plan.stages:
            tok, seq = evaluate(model, test_length)
            print(f"    free-running length {test_length}: token accuracy {tok:.3f}, whole {seq:.3f}")


if __name__ == "__main__":
    main()
