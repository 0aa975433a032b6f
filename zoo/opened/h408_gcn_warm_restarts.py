# expect: healthy
# symptom: resembles a scheduler stepped at the wrong place (and a rate that is too high): the rate jumps up 20-fold every 100 steps, the loss bumps at each restart, and several backward calls come before each zero_grad
# axis: schedule
# cause: none
# says: none
# onset_step: 0
# fix: none
# mended: not needed
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(53)
torch.set_num_threads(1)

NODES, CLASSES, FEATS, WIDTH = 600, 6, 24, 48
CYCLE, CYCLES, PARTS = 100, 4, 4


def make_graph():
    y = torch.randint(0, CLASSES, (NODES,))
    prob = torch.where(y[:, None] == y[None, :], 0.03, 0.004)
    upper = torch.triu((torch.rand(NODES, NODES) < prob).float(), 1)
    adj = upper + upper.t() + torch.eye(NODES)
    d = adj.sum(1).rsqrt()
    adj = d[:, None] * adj * d[None, :]
    x = torch.randn(CLASSES, FEATS)[y] * 0.5 + torch.randn(NODES, FEATS)
    return adj, x, y


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(FEATS, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.out = nn.Linear(WIDTH, CLASSES)

    def forward(self, adj, x):
        h = F.dropout(F.relu(adj @ self.l1(x)), 0.3, self.training)
        h = h + F.dropout(F.relu(adj @ self.l2(h)), 0.3, self.training)
        return self.out(h)


@torch.no_grad()
def accuracy(model, adj, x, y, idx):
    model.eval()
    acc = (model(adj, x)[idx].argmax(1) == y[idx]).float().mean().item()
    model.train()
    return acc


def main():
    adj, x, y = make_graph()
    order = torch.randperm(NODES)
    train, test = order[:300], order[300:]
    model = GCN()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-2, weight_decay=1e-2)
    sched = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, T_0=CYCLE, eta_min=1e-3)
    t0 = time.time()
    for step in range(1, CYCLE * CYCLES + 1):
        opt.zero_grad()
        total = 0.0
        for idx in train[torch.randperm(len(train))].chunk(PARTS):
            loss = F.cross_entropy(model(adj, x)[idx], y[idx], reduction="sum") / len(train)
            loss.backward()
            total += loss.item()
        opt.step()
        sched.step()
        if step == 1 or step % 25 == 0:
            acc = accuracy(model, adj, x, y, test)
            print(f"step {step:4d} loss {total:.4f} test acc {acc:.3f} lr {sched.get_last_lr()[0]:.1e}")
    print(f"final test accuracy {accuracy(model, adj, x, y, test):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
