# expect: sick
# symptom: the mixture's loss stops high although larger experts were added; more experts change nothing
# axis: model
# cause: the experts are kept in a plain Python list, so parameters() does not hand them to the optimizer and they never train
# says: experts?.{0,80}(not |never|plain|list|modulelist|unregister|missing|frozen|without|outside)|modulelist|module list|plain (python )?list|(param\w*|weight|module|layer|tensor)s?.{0,60}(not|never|missing|absent|outside|un).{0,40}(optimi\w*|regist\w*|param\w*\(\))|(not|never|un|missing).{0,20}(regist\w*|(in|from|to|handed to|given to|passed to) the optimi\w*)
# onset_step: 1
# fix: keep the experts in nn.ModuleList
# mended: MENDED=1
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)


class Expert(nn.Module):
    def __init__(self, dim, hidden, out):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, out)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class MixtureLayer(nn.Module):
    def __init__(self, dim, hidden, out, n_experts=6, top_k=2):
        super().__init__()
        self.gate = nn.Linear(dim, n_experts)
        experts = [Expert(dim, hidden, out) for _ in range(n_experts)]
        self.experts = nn.ModuleList(experts) if os.environ.get("MENDED") == "1" else experts
        self.top_k = top_k

    def forward(self, x):
        probs = self.gate(x).softmax(-1)
        weight, index = probs.topk(self.top_k, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        out = 0
        for i, expert in enumerate(self.experts):
            share = (weight * (index == i)).sum(-1, keepdim=True)
            out = out + share * expert(x)
        load = F.one_hot(index[:, 0], len(self.experts)).float().mean(0)
        balance = len(self.experts) * (load * probs.mean(0)).sum()
        return out, balance


class Net(nn.Module):
    def __init__(self, dim=24, out=12, classes=10):
        super().__init__()
        self.moe = MixtureLayer(dim, 64, out)
        self.norm = nn.LayerNorm(out)
        self.head = nn.Linear(out, classes)

    def forward(self, x):
        h, balance = self.moe(x)
        return self.head(self.norm(h)), balance


def make_data(n=8000, dim=24, classes=10):
    centers = torch.randn(30, dim) * 1.3
    owner = torch.arange(30) % classes
    which = torch.randint(0, 30, (n,))
    x = centers[which] + 0.9 * torch.randn(n, dim)
    return (x - x.mean(0)) / x.std(0), owner[which]


def main():
    x, y = make_data()
    xt, yt, xv, yv = x[:7000], y[:7000], x[7000:], y[7000:]
    net = Net()
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=4e-3, total_steps=500)
    for step in range(1, 501):
        idx = torch.randint(0, len(xt), (128,))
        logits, balance = net(xt[idx])
        loss = F.cross_entropy(logits, yt[idx]) + 0.01 * balance
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()
        sched.step()
        if step % 50 == 0:
            with torch.no_grad():
                acc = (net(xv)[0].argmax(-1) == yv).float().mean().item()
            print(f"step {step} loss {loss.item():.3f} lr {sched.get_last_lr()[0]:.2e} val_acc {acc:.3f}")


if __name__ == "__main__":
    main()
