# expect: sick
# symptom: nothing explodes, the loss creeps down very slowly and the node classification is far below what the graph allows after all the steps
# axis: optimizer
# cause: the decay was passed as Adam's fourth positional argument, so eps is 0.05 and dwarfs the root of the second moment; the updates are a small fraction of the intended ones
# says: \beps(ilon)?\b|positional|fourth argument|denominator
# onset_step: 1
# fix: pass it as weight_decay and leave eps at 1e-8
# mended: Adam(params, lr, (0.9, 0.999), 1e-8, 5e-4)
import os

import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(55)
NODES, CLASSES, WORDS = 600, 6, 80

label = torch.randint(CLASSES, (NODES,))
same = label[:, None] == label[None]
p_edge = torch.where(same, 0.03, 0.004)
A = (torch.rand(NODES, NODES) < p_edge).float().triu(1)
A = A + A.T + torch.eye(NODES)
deg = A.sum(1)
A_hat = A / (deg[:, None] * deg[None]).sqrt()
topic = torch.rand(CLASSES, WORDS) ** 3
bag = (torch.rand(NODES, WORDS) < 0.15 * topic[label] + 0.05).float()
bag = bag / bag.sum(1, keepdim=True).clamp(min=1)

perm = torch.randperm(NODES)
train_idx, test_idx = perm[:180], perm[180:]


class GCN(nn.Module):
    def __init__(self, hidden=32, p=0.3):
        super().__init__()
        self.w1, self.w2 = nn.Linear(WORDS, hidden), nn.Linear(hidden, CLASSES)
        self.p = p

    def forward(self, a, x):
        h = F.relu(a @ self.w1(x))
        return a @ self.w2(F.dropout(h, self.p, self.training))


def fit(steps=400):
    net = GCN()
    eps = 1e-8 if os.environ.get("MENDED") == "1" else 5e-2
    opt = torch.optim.Adam(net.parameters(), 0.01, (0.9, 0.999), eps, 5e-4)
    for step in range(steps):
        net.train()
        out = net(A_hat, bag)
        loss = F.cross_entropy(out[train_idx], label[train_idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0 or step == steps - 1:
            net.eval()
            with torch.no_grad():
                acc = (net(A_hat, bag)[test_idx].argmax(1) == label[test_idx]).float().mean()
            print(f"step {step}: loss {loss.item():.4f}, test accuracy {acc.item():.3f}")


fit()
