# expect: sick
# symptom: right after the resume at step 300 the loss jumps threefold above its last value and it takes a hundred steps or more to come back
# axis: optimizer
# cause: on resume the second moment of the hand-written Adam is not restored while the first moment and the step counter are, so the first updates divide by almost nothing and are far too large
# says: resum|checkpoint|bias.?correct|moment|(optimi[sz]er|adam).{0,30}state|state.{0,40}(optimi[sz]er|adam|restor|lost|reset|stale|load)|second.?moment|exp_avg|step.?count
# onset_step: 300
# fix: restore the second moment too
# mended: load() also restores v
import os
import tempfile

import torch
from torch import nn

torch.manual_seed(2)


class MyAdam:
    def __init__(self, params, lr=6e-3, b1=0.9, b2=0.999, eps=1e-8):
        self.params = list(params)
        self.lr, self.b1, self.b2, self.eps, self.t = lr, b1, b2, eps, 0
        self.m = [torch.zeros_like(p) for p in self.params]
        self.v = [torch.zeros_like(p) for p in self.params]

    def zero_grad(self):
        for p in self.params:
            p.grad = None

    @torch.no_grad()
    def step(self):
        self.t += 1
        c1, c2 = 1 - self.b1**self.t, 1 - self.b2**self.t
        for p, m, v in zip(self.params, self.m, self.v):
            m.mul_(self.b1).add_(p.grad, alpha=1 - self.b1)
            v.mul_(self.b2).addcmul_(p.grad, p.grad, value=1 - self.b2)
            p.sub_(self.lr * (m / c1) / ((v / c2).sqrt() + self.eps))

    def save(self):
        return {"t": self.t, "lr": self.lr, "m": self.m, "v": self.v}

    def load(self, d):
        self.t, self.lr, self.m = d["t"], d["lr"], d["m"]
        if os.environ.get("MENDED") == "1":
            self.v = d["v"]


class Lang(nn.Module):
    def __init__(self, vocab=60, d=64):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.lstm = nn.LSTM(d, d, num_layers=2, batch_first=True)
        self.out = nn.Linear(d, vocab)

    def forward(self, x):
        return self.out(self.lstm(self.emb(x))[0])


g = torch.Generator().manual_seed(6)
rule = torch.randint(20, (20, 20), generator=g)


def batch(n=24, t=28):
    s = torch.randint(20, (n, t + 1), generator=g)
    for k in range(2, t + 1):
        keep = torch.rand(n, generator=g) < 0.9
        s[:, k] = torch.where(keep, rule[s[:, k - 1], s[:, k - 2] // 7], s[:, k])
    rare = torch.rand(s.shape, generator=g) < 0.02  # names, figures and the like
    s = torch.where(rare, torch.randint(20, 60, s.shape, generator=g), s)
    return s[:, :-1], s[:, 1:]


def run(model, opt, first, last):
    for step in range(first, last):
        x, y = batch()
        loss = nn.functional.cross_entropy(model(x).transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 30 == 0 or step in (299, 302, 305, 310, 599):
            print(f"step {step} loss {loss.item():.4f}")


with tempfile.TemporaryDirectory() as tmp:
    model = Lang()
    opt = MyAdam(model.parameters())
    run(model, opt, 0, 300)
    torch.save({"model": model.state_dict(), "opt": opt.save(), "step": 300}, f"{tmp}/ck.pt")
    del model, opt
    ck = torch.load(f"{tmp}/ck.pt")
    model = Lang()
    model.load_state_dict(ck["model"])
    opt = MyAdam(model.parameters())
    opt.load(ck["opt"])
    print("resumed at", ck["step"])
    run(model, opt, ck["step"], 600)
