# expect: sick
# symptom: total loss falls at first, then rises for the rest of the run; the KL term shrinks towards zero and reconstructions get blurry and stop depending on the input
# axis: schedule
# cause: the KL weight is annealed as step / warmup with no cap at 1, so beta goes on growing far above 1 after the warm-up and the posterior collapses
# says: (kl|beta).{0,60}(uncapped|not capped|no cap|never capped|unbounded|not bounded|without (a )?(cap|bound|limit|clamp|max)|not clamped|no clamp|keeps? (growing|rising|increasing)|grows? (past|above|beyond|without)|exceeds? 1|above 1|too (large|big|high|strong))|(anneal|warm.?up).{0,60}(kl|beta).{0,60}(cap|clamp|bound|min\(|never stop|past)|posterior collapse.{0,60}(beta|kl).?(weight|anneal|coef)
# onset_step: 51
# fix: cap the KL weight at 1: beta = min(1.0, step / warmup)
# mended: with MENDED=1 the annealing function returns min(1.0, step / kl_warmup)
import argparse
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


def make_shapes(n, rng, size=16):
    yy, xx = np.mgrid[0:size, 0:size]
    out = np.zeros((n, 1, size, size), dtype=np.float32)
    for i in range(n):
        cx, cy = rng.uniform(4, 12, 2)
        r = rng.uniform(2.0, 4.0)
        if rng.random() < 0.5:
            m = (xx - cx) ** 2 + (yy - cy) ** 2 < r * r
        else:
            m = (abs(xx - cx) < r) & (abs(yy - cy) < r)
        out[i, 0][m] = 1.0
    return torch.from_numpy(out)


class ConvVAE(nn.Module):
    def __init__(self, zdim=8):
        super().__init__()
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2, 1),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * 16, 64),
            nn.ReLU(),
        )
        self.mu = nn.Linear(64, zdim)
        self.logvar = nn.Linear(64, zdim)
        self.fc = nn.Linear(zdim, 32 * 16)
        self.dec = nn.Sequential(
            nn.ReLU(), nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.ReLU(), nn.ConvTranspose2d(16, 1, 4, 2, 1)
        )

    def forward(self, x):
        h = self.enc(x)
        mu, logvar = self.mu(h), self.logvar(h)
        z = mu + torch.randn_like(mu) * torch.exp(0.5 * logvar)
        return self.dec(self.fc(z).view(-1, 32, 4, 4)), mu, logvar


def elbo_terms(logits, x, mu, logvar):
    rec = F.binary_cross_entropy_with_logits(logits, x, reduction="sum") / x.size(0)
    kl = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp()) / x.size(0)
    return rec, kl


def kl_weight(step, warmup):
    if os.environ.get("MENDED") == "1":
        return min(1.0, step / warmup)
    return step / warmup


@torch.no_grad()
def evaluate(model, x):
    model.eval()
    logits, mu, logvar = model(x)
    rec, kl = elbo_terms(logits, x, mu, logvar)
    model.train()
    return rec.item(), kl.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--epochs", type=int, default=20)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--kl-warmup", type=int, default=50)
    args = p.parse_args()

    torch.manual_seed(7)
    rng = np.random.default_rng(7)
    train, val = make_shapes(2240, rng), make_shapes(256, rng)
    loader = DataLoader(TensorDataset(train), batch_size=args.batch_size, shuffle=True, drop_last=True)
    model = ConvVAE()
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)

    step = 0
    for epoch in range(args.epochs):
        for (x,) in loader:
            step += 1
            logits, mu, logvar = model(x)
            rec, kl = elbo_terms(logits, x, mu, logvar)
            loss = rec + kl_weight(step, args.kl_warmup) * kl
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 35 == 0:
                print(f"step {step:4d}  loss {loss.item():8.2f}  rec {rec.item():7.2f}  kl {kl.item():6.2f}")
        if epoch % 5 == 4:
            r, k = evaluate(model, val)
            print(f"[epoch {epoch + 1}] val rec {r:.2f}  val kl {k:.2f}  val -elbo {r + k:.2f}")


if __name__ == "__main__":
    main()
