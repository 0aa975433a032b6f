# expect: sick
# symptom: in-batch softmax loss falls smoothly, nothing explodes, but held-out recall@20 stays very low and the retrieved lists are full of obscure items
# axis: loss
# cause: the logQ sampling correction of the in-batch softmax has the wrong sign: log of the item's sampling probability is added to the logits instead of subtracted, so popular items are penalised doubly
# says: (log.?q|log.?prob\w*|log.?freq\w*|popularity|sampling|frequency).{0,250}(wrong sign|sign\b|is added|are added|adds\b|adding|added|instead of (being )?subtract|should (be )?subtract|inverted|reversed|opposite|wrong direction|backwards)|(wrong sign|sign\b|added|adds\b|adding|should (be )?subtract\w*|inverted|opposite|flipped).{0,200}(log.?q|log.?prob|log.?freq|popularity|sampling|frequency|correction)
# onset_step: 1
# fix: logits = scores - log_q instead of scores + log_q
# mended: yes
"""Two-tower retrieval model for a synthetic marketplace, trained with in-batch negatives."""

import os
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


@dataclass
class Config:
    users: int = 1500
    items: int = 800
    latent: int = 6
    per_user: int = 40
    dim: int = 24
    batch: int = 256
    steps: int = 900
    lr: float = 4e-3
    seed: int = 29


class Marketplace:
    """Users pick items by taste and by how visible an item is."""

    def __init__(self, cfg):
        g = np.random.default_rng(cfg.seed)
        taste = g.normal(size=(cfg.users, cfg.latent))
        theme = g.normal(size=(cfg.items, cfg.latent))
        visibility = -1.1 * np.log(1 + g.permutation(cfg.items))
        score = 0.8 * taste @ theme.T + visibility
        prob = np.exp(score - score.max(1, keepdims=True))
        prob /= prob.sum(1, keepdims=True)
        pairs = [(u, i) for u in range(cfg.users) for i in np.unique(g.choice(cfg.items, size=cfg.per_user, p=prob[u]))]
        pairs = np.array(pairs)
        g.shuffle(pairs)
        cut = int(0.9 * len(pairs))
        self.train, self.test = torch.tensor(pairs[:cut]), torch.tensor(pairs[cut:])
        self.user_feat = torch.tensor(taste + 0.4 * g.normal(size=taste.shape), dtype=torch.float32)
        self.item_feat = torch.tensor(theme + 0.4 * g.normal(size=theme.shape), dtype=torch.float32)


class Tower(nn.Module):
    def __init__(self, n, feat, dim):
        super().__init__()
        self.ids = nn.Embedding(n, dim)
        nn.init.normal_(self.ids.weight, std=0.05)
        self.bias = nn.Embedding(n, 1)
        nn.init.zeros_(self.bias.weight)
        self.mlp = nn.Sequential(nn.Linear(feat + dim, 64), nn.GELU(), nn.Linear(64, dim))

    def forward(self, idx, feats):
        return self.mlp(torch.cat([self.ids(idx), feats[idx]], -1)), self.bias(idx).squeeze(-1)


class Retrieval(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.user = Tower(cfg.users, cfg.latent, cfg.dim)
        self.item = Tower(cfg.items, cfg.latent, cfg.dim)

    def scores(self, u, i, shop):
        q, _ = self.user(u, shop.user_feat)
        k, b = self.item(i, shop.item_feat)
        return q @ k.t() + b


def in_batch_loss(scores, items, log_q):
    if os.environ.get("MENDED") == "1":
        logits = scores - log_q[items]
    else:
        logits = scores + log_q[items]
    same = items[:, None].eq(items[None, :])
    same.fill_diagonal_(False)
    logits = logits.masked_fill(same, -1e4)
    return F.cross_entropy(logits, torch.arange(len(items)))


@torch.no_grad()
def recall_at(model, shop, cfg, k=20):
    s = model.scores(torch.arange(cfg.users), torch.arange(cfg.items), shop)
    s[shop.train[:, 0], shop.train[:, 1]] = -float("inf")
    top = s.topk(k, 1).indices
    hit = (top[shop.test[:, 0]] == shop.test[:, 1:2]).any(1)
    return hit.float().mean().item()


def main(cfg=Config()):
    torch.manual_seed(cfg.seed)
    shop = Marketplace(cfg)
    counts = torch.bincount(shop.train[:, 1], minlength=cfg.items).float() + 1
    log_q = (counts / counts.sum()).log()
    model = Retrieval(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=cfg.steps)
    print(f"{len(shop.train)} train pairs, {len(shop.test)} test pairs")
    for step in range(1, cfg.steps + 1):
        batch = shop.train[torch.randint(len(shop.train), (cfg.batch,))]
        u, i = batch.unbind(1)
        loss = in_batch_loss(model.scores(u, i, shop), i, log_q)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 75 == 0:
            msg = f"step {step} loss {loss.item():.4f}"
            if step % 150 == 0:
                msg += f" recall@20 {recall_at(model, shop, cfg):.4f}"
            print(msg)


if __name__ == "__main__":
    main()
