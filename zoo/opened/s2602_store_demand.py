# expect: sick
# symptom: the loss drops a little at first and then sits flat; the validation R2 stays around zero whatever the learning rate
# axis: loss
# cause: the network returns predictions of shape (B, 1) while the targets have shape (B,), so their difference broadcasts to a (B, B) matrix and every prediction is pulled to the batch mean
# says: (broadcast|\(?\[?\s*(b|n|batch|batch_size)\s*,\s*1\s*[\])]|\bb\s*x\s*b\b|shape mismatch|mismatch\w* .*shape|shapes? .*(mismatch|differ|not match|don.t match|disagree)|outer (difference|product)|(missing|without|needs?|forgot\w*|no) .{0,20}squeeze|every (prediction|output).*(every|all) (target|label))
# onset_step: 1
# fix: squeeze the last dimension of the network output before the loss
# mended: yes
"""Daily demand per (store, product): entity embeddings + residual MLP on log1p(units)."""

import argparse
import os
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.set_num_threads(1)


def build_table(rows, seed):
    """Simulates the sales ledger; returns categorical codes, numeric columns and units sold."""
    rng = np.random.default_rng(seed)
    store = rng.integers(0, 25, rows)
    product = rng.integers(0, 60, rows)
    weekday = rng.integers(0, 7, rows)
    price_ratio = rng.lognormal(0.0, 0.18, rows)
    promo = (rng.random(rows) < 0.2).astype(float)
    temp = rng.normal(15, 8, rows)
    s_eff = rng.normal(0, 0.5, 25)
    p_eff = rng.normal(0, 0.8, 60)
    elast = rng.uniform(-3.0, -0.8, 60)
    season = rng.normal(0, 0.03, 60)
    wd = np.array([-0.1, -0.15, -0.1, 0.0, 0.2, 0.4, 0.1])
    mu = (
        2.6
        + s_eff[store]
        + p_eff[product]
        + elast[product] * np.log(price_ratio)
        + 0.5 * promo
        + wd[weekday]
        + season[product] * (temp - 15)
    )
    units = rng.poisson(np.exp(mu))
    cats = np.stack([store, product, weekday], 1)
    nums = np.stack([np.log(price_ratio) / 0.18, promo, (temp - 15) / 8], 1)
    return cats, nums.astype(np.float32), units


class Block(nn.Module):
    def __init__(self, d, p):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, 2 * d)
        self.down = nn.Linear(2 * d, d)
        self.drop = nn.Dropout(p)

    def forward(self, x):
        return x + self.drop(self.down(nn.functional.gelu(self.up(self.norm(x)))))


class DemandNet(nn.Module):
    def __init__(self, cardinalities, n_num, width=112, depth=3, p=0.05):
        super().__init__()
        self.emb = nn.ModuleList([nn.Embedding(c, min(16, 2 + c // 3)) for c in cardinalities])
        d_in = sum(e.embedding_dim for e in self.emb) + n_num
        self.stem = nn.Linear(d_in, width)
        self.blocks = nn.Sequential(*[Block(width, p) for _ in range(depth)])
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 1))

    def forward(self, cats, nums):
        e = [emb(cats[:, i]) for i, emb in enumerate(self.emb)]
        h = self.blocks(self.stem(torch.cat(e + [nums], dim=1)))
        out = self.head(h)
        if os.environ.get("MENDED") == "1":
            out = out.squeeze(-1)
        return out


class LogCosh(nn.Module):
    """Smooth regression loss, quadratic near zero and linear in the tails."""

    def forward(self, pred, target):
        d = pred - target
        return (d + nn.functional.softplus(-2.0 * d) - np.log(2.0)).mean()


def r2(model, loader):
    model.eval()
    preds, ys = [], []
    with torch.no_grad():
        for c, n, y in loader:
            preds.append(model(c, n).numpy().ravel())
            ys.append(y.numpy())
    model.train()
    p, y = np.concatenate(preds), np.concatenate(ys)
    return 1.0 - ((p - y) ** 2).sum() / ((y - y.mean()) ** 2).sum()


def run(args):
    torch.manual_seed(args.seed)
    cats, nums, units = build_table(args.rows, args.seed)
    y = torch.from_numpy(np.log1p(units)).float()
    full = TensorDataset(torch.from_numpy(cats), torch.from_numpy(nums), y)
    n_val = len(full) // 6
    train, val = random_split(full, [len(full) - n_val, n_val])
    tl = DataLoader(train, batch_size=args.batch, shuffle=True, drop_last=True)
    vl = DataLoader(val, batch_size=512)

    model = DemandNet((25, 60, 7), nums.shape[1])
    loss_fn = LogCosh()
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(tl))
    step = 0
    for epoch in range(args.epochs):
        for c, n, target in tl:
            loss = loss_fn(model(c, n), target)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 2.0)
            opt.step()
            sched.step()
            step += 1
            if step % 50 == 0:
                print(f"[{epoch}] step {step} logcosh {loss.item():.4f}", flush=True)
        print(f"epoch {epoch}: val R2 = {r2(model, vl):.4f}", flush=True)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--rows", type=int, default=19000)
    ap.add_argument("--batch", type=int, default=128)
    ap.add_argument("--epochs", type=int, default=7)
    ap.add_argument("--lr", type=float, default=3e-3)
    ap.add_argument("--seed", type=int, default=7)
    run(ap.parse_args())
