# expect: sick
# symptom: the loss goes down and flattens out far too high, accuracy stays mediocre although the model should solve the task; no error, no warning
# axis: optimizer
# cause: the weight-decay / no-decay parameter groups are built from name endings, the GRU's parameters (weight_ih_l0, bias_hh_l1, ...) match none of them, so the optimizer never gets them and the GRU stays at its random initial values
# says: (gru|rnn|recurren\w*|param\w*|weights?|weight_\w+|layers?|modules?)\b[^.]{0,120}(not (in|pass|part|cover|includ|updat|train|given|regist|chang|mov)|never (in|updat|chang|mov|train|pass|gets?|step|receiv|hand)|n't (in|updat|pass|train|chang)|missing|left out|omit|exclud|frozen|untrained|outside|absent|stays? (at|random|init)|dropped|skipped)|(optimi[sz]er|param\w* group)\w*[^.]{0,60}(lacks?|miss\w*|omit\w*|exclud\w*|leav\w+ out|drops?|skips?|(does|do) ?(not|n't) (include|contain|get|cover|receive|hold|have)|never (gets?|sees?|receives?|includes?))[^.]{0,60}(param|gru|rnn|recurren|weight|them)|(every|all)( of the)? param\w*[^.]{0,40}(group|optimi)
# onset_step: 0
# fix: put every parameter in one of the groups (assert it), for instance no_decay = ndim < 2, decay = the rest
# mended: MENDED=1 groups the parameters by their number of dimensions, so that all are in the optimizer
import math
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)

N_BAND, N_UNITS, N_CMD = 16, 6, 12


class Commands:
    """Each command is a fixed order of four sound units; speakers differ in tempo, loudness and noise.
    Several commands use the same units in another order."""

    def __init__(self, seed):
        rng = np.random.default_rng(0)
        self.units = rng.normal(size=(N_UNITS, N_BAND)).astype(np.float32)
        orders = set()
        while len(orders) < N_CMD:
            base = rng.permutation(N_UNITS)[:4]
            orders.add(tuple(base))
            orders.add(tuple(base[[1, 0, 3, 2]]))
            orders.add(tuple(base[::-1]))
        self.orders = np.array(sorted(orders)[:N_CMD])
        self.rng = np.random.default_rng(seed)

    def one(self, c, frames=34):
        dur = self.rng.integers(4, 9, size=4)
        idx = np.repeat(self.orders[c], dur)[:frames]
        x = np.zeros((frames, N_BAND), dtype=np.float32)
        start = self.rng.integers(0, frames - len(idx) + 1)
        x[start : start + len(idx)] = self.units[idx] * self.rng.uniform(0.6, 1.4)
        return x + self.rng.normal(0, 0.9, size=x.shape).astype(np.float32)

    def batch(self, n):
        c = self.rng.integers(0, N_CMD, size=n)
        return torch.from_numpy(np.stack([self.one(k) for k in c])), torch.from_numpy(c)


class CommandNet(nn.Module):
    def __init__(self, d=32, hidden=32):
        super().__init__()
        self.inp = nn.Linear(N_BAND, d)
        self.norm = nn.LayerNorm(d)
        self.gru = nn.GRU(d, hidden, num_layers=2, batch_first=True)
        self.out = nn.Linear(hidden, N_CMD)

    def forward(self, x):
        h = self.norm(F.relu(self.inp(x)))
        h, _ = self.gru(h)
        return self.out(h[:, -1])


def build_optimizer(model, lr, wd):
    decay, plain = [], []
    for name, p in model.named_parameters():
        if MENDED:
            (decay if p.ndim >= 2 else plain).append(p)
        elif name.endswith(".bias") or "norm" in name:
            plain.append(p)
        elif name.endswith(".weight"):
            decay.append(p)
    return torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": wd},
            {"params": plain, "weight_decay": 0.0},
        ],
        lr=lr,
        betas=(0.9, 0.98),
    )


def lr_lambda(total, warmup=40):
    def f(s):
        if s < warmup:
            return (s + 1) / warmup
        return 0.05 + 0.475 * (1 + math.cos(math.pi * (s - warmup) / (total - warmup)))

    return f


@torch.no_grad()
def evaluate(model, x, y):
    model.eval()
    logits = model(x)
    model.train()
    return F.cross_entropy(logits, y).item(), (logits.argmax(1) == y).float().mean().item()


def main():
    torch.manual_seed(8)
    train, test = Commands(seed=1), Commands(seed=2)
    xt, yt = test.batch(400)
    model = CommandNet()
    total = 400
    opt = build_optimizer(model, lr=4e-3, wd=0.02)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lr_lambda(total))
    for step in range(total):
        x, y = train.batch(24)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
        if step % 100 == 99:
            vl, acc = evaluate(model, xt, yt)
            print(f"   test loss {vl:.4f} acc {acc:.3f}")


if __name__ == "__main__":
    main()
