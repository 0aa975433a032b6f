# expect: healthy
# fault: none
# note: deliberate BitFit: a net trained on one task is fine-tuned to a shifted task on its biases and head only.
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
W = torch.randn(16, 4)
net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(shift=0.0, n=64):
    x = torch.randn(n, 16)
    return x + shift, (x @ W).argmax(1)


def fit(params, steps, lr, shift, tag):
    opt = torch.optim.AdamW(params, lr=lr)
    for s in range(steps):
        x, y = batch(shift)
        loss = F.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if s % 20 == 0:
            print(tag, s, round(loss.item(), 4))


fit(net.parameters(), 120, 3e-3, 0.0, "pretrain")
# BitFit (Ben Zaken et al.): biases and the task head only
for n, p in net.named_parameters():
    p.requires_grad_(n.endswith("bias") or n.startswith("4."))
fit([p for p in net.parameters() if p.requires_grad], 120, 5e-3, 1.0, "bitfit")
