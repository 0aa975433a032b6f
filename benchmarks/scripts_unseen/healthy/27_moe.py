# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(61)


class MoE(nn.Module):
    def __init__(self, d, n_exp=8):
        super().__init__()
        self.gate = nn.Linear(d, n_exp, bias=False)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(d, 32), nn.ReLU(), nn.Linear(32, d)) for _ in range(n_exp))

    def forward(self, x):
        p = self.gate(x).softmax(-1)
        w, k = p.max(-1)  # top-1
        out = torch.zeros_like(x)
        for e in k.unique().tolist():  # an expert nobody chose does not run
            sel = k == e
            out[sel] = w[sel, None] * self.experts[e](x[sel])
        load = F.one_hot(k, p.size(1)).float().mean(0)
        return x + out, p.size(1) * (load * p.mean(0)).sum()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(10, 24)
        self.moe = MoE(24)
        self.out = nn.Linear(24, 5)

    def forward(self, x):
        h, aux = self.moe(torch.relu(self.inp(x)))
        return self.out(h), aux


net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
mu = torch.randn(5, 10)
for step in range(140):
    y = torch.randint(0, 5, (24,))
    logits, aux = net(mu[y] + 0.9 * torch.randn(24, 10))
    loss = F.cross_entropy(logits, y) + 0.3 * aux
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    if step % 20 == 0:
        idle = sum(next(e.parameters()).grad is None for e in net.moe.experts)
        print(f"step {step} loss {loss.item():.4f} idle experts {idle}")
