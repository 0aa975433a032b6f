# expect: sick
# symptom: the losses blow up to huge values within a few dozen steps and never come back
# axis: harness
# cause: only the embedding optimizer's gradients are zeroed each step; the dense layers, held by a second optimizer, keep accumulating gradients over all steps
# says: zero_grad|grad\w*.*(not|never|without|n't|only).*(zero|clear|reset)\w*|(not|never|without|n't|only).*(zero|clear|reset)\w*.*grad|grad\w*.*(accumulat|pil(e|ing)|build(s|ing)? up|add(s|ing)? up)\w*|accumulat\w*.*grad|stale grad
# onset_step: 1
# fix: call zero_grad() on the dense optimizer as well at every step
# mended: yes
"""Click and purchase prediction for a shop feed: shared embeddings, two towers, two optimizers."""

import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class FeedConfig:
    users: int = 300
    items: int = 200
    rows: int = 16000
    dim: int = 12
    hidden: int = 48
    batch: int = 128
    epochs: int = 4
    dense_lr: float = 0.1
    momentum: float = 0.9
    table_lr: float = 1e-2
    purchase_weight: float = 0.5


def simulate(cfg, seed):
    g = torch.Generator().manual_seed(seed)
    taste = torch.randn(cfg.users, 4, generator=g)
    item = torch.randn(cfg.items, 4, generator=g)
    price = torch.rand(cfg.items, generator=g)
    budget = torch.rand(cfg.users, generator=g)
    u = torch.randint(cfg.users, (cfg.rows,), generator=g)
    i = torch.randint(cfg.items, (cfg.rows,), generator=g)
    hour = torch.rand(cfg.rows, 1, generator=g)
    affinity = (taste[u] * item[i]).sum(1)
    p_click = torch.sigmoid(1.5 * affinity + 0.5 * torch.sin(6.28 * hour[:, 0]))
    click = (torch.rand(cfg.rows, generator=g) < p_click).float()
    p_buy = torch.sigmoid(6 * (budget[u] - price[i]) + 0.5 * affinity)
    buy = click * (torch.rand(cfg.rows, generator=g) < p_buy).float()
    ctx = torch.cat([torch.sin(6.28 * hour), torch.cos(6.28 * hour), price[i][:, None]], 1)
    return TensorDataset(u, i, ctx, click, buy)


class FeedModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user = nn.Embedding(cfg.users, cfg.dim)
        self.item = nn.Embedding(cfg.items, cfg.dim)
        for table in (self.user, self.item):
            nn.init.normal_(table.weight, std=0.3)
        self.bottom = nn.Sequential(nn.Linear(3 * cfg.dim + 3, cfg.hidden), nn.ReLU())
        self.click = nn.Sequential(nn.Linear(cfg.hidden, 24), nn.ReLU(), nn.Linear(24, 1))
        self.buy = nn.Sequential(nn.Linear(cfg.hidden, 24), nn.ReLU(), nn.Linear(24, 1))

    def forward(self, u, i, ctx):
        eu, ei = self.user(u), self.item(i)
        h = self.bottom(torch.cat([eu, ei, eu * ei, ctx], 1))
        return self.click(h).squeeze(1), self.buy(h).squeeze(1)

    def tables(self):
        return [self.user.weight, self.item.weight]

    def dense(self):
        return [p for m in (self.bottom, self.click, self.buy) for p in m.parameters()]


def auc(score, label):
    order = score.argsort()
    rank = torch.empty_like(score)
    rank[order] = torch.arange(1, len(score) + 1, dtype=score.dtype)
    pos = label.sum()
    neg = len(label) - pos
    return ((rank[label > 0].sum() - pos * (pos + 1) / 2) / (pos * neg)).item()


class FeedTrainer:
    def __init__(self, cfg, train, dev):
        self.cfg, self.dev = cfg, dev
        self.model = FeedModel(cfg)
        self.loader = DataLoader(train, batch_size=cfg.batch, shuffle=True, drop_last=True)
        self.dense_opt = torch.optim.SGD(self.model.dense(), lr=cfg.dense_lr, momentum=cfg.momentum)
        self.table_opt = torch.optim.Adam(self.model.tables(), lr=cfg.table_lr)
        self.step = 0

    def losses(self, u, i, ctx, click, buy):
        lc, lb = self.model(u, i, ctx)
        click_loss = F.binary_cross_entropy_with_logits(lc, click)
        raw = F.binary_cross_entropy_with_logits(lb, buy, reduction="none")
        buy_loss = (raw * click).sum() / click.sum().clamp(min=1)
        return click_loss, buy_loss

    def train_step(self, batch):
        self.table_opt.zero_grad()
        if MENDED:
            self.dense_opt.zero_grad()
        click_loss, buy_loss = self.losses(*batch)
        (click_loss + self.cfg.purchase_weight * buy_loss).backward()
        self.dense_opt.step()
        self.table_opt.step()
        self.step += 1
        return click_loss.item(), buy_loss.item()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        u, i, ctx, click, buy = self.dev
        lc, lb = self.model(u, i, ctx)
        seen = click > 0
        self.model.train()
        return auc(lc, click), auc(lb[seen], buy[seen])

    def fit(self):
        for epoch in range(self.cfg.epochs):
            for batch in self.loader:
                c, b = self.train_step(batch)
                if self.step % 25 == 0:
                    print(f"step {self.step:4d} click loss {c:.4f} purchase loss {b:.4f}")
            ctr, cvr = self.evaluate()
            print(f"epoch {epoch} dev click AUC {ctr:.3f} purchase AUC {cvr:.3f}")


def main():
    torch.manual_seed(21)
    cfg = FeedConfig()
    data = simulate(cfg, seed=4)
    cut = cfg.rows - 2000
    train = TensorDataset(*[t[:cut] for t in data.tensors])
    dev = [t[cut:] for t in data.tensors]
    FeedTrainer(cfg, train, dev).fit()


if __name__ == "__main__":
    main()
