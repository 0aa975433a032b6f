# expect: healthy
# symptom: the loss starts at 16,700 and stays near 3,000 with bumps, the gradient norm is in the hundreds to 10,000 and always clipped at 10, the last batch of each epoch gives a much smaller loss, most embedding rows have zero gradient; it is a summed negative binomial likelihood of heavy-tailed counts and comes near the true model's value
# axis: none
# mended: none
import os
import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(108)
rng = np.random.default_rng(108)

SHOPS, ARTICLES, N = 120, 4000, 40_200
BATCH, EPOCHS, SHAPE = 512, 8, 2.0


def make_sales():
    shop = rng.integers(0, SHOPS, N)
    article = np.minimum((rng.pareto(0.8, N) * 40).astype(int), ARTICLES - 1)
    day = rng.integers(0, 7, N)
    promo = rng.random(N) < 0.1
    log_rate = (
        rng.normal(0, 0.7, SHOPS)[shop]
        + rng.normal(2.0, 1.2, ARTICLES)[article]
        + np.array([0, -0.2, -0.2, 0, 0.3, 0.6, 0.4])[day]
        + 1.2 * promo
    )
    rate = np.exp(log_rate)
    count = rng.poisson(rate * rng.gamma(SHAPE, 1 / SHAPE, N))
    feats = np.concatenate([np.eye(7)[day], promo[:, None]], 1)
    to = torch.as_tensor
    return (
        to(shop),
        to(article),
        to(feats, dtype=torch.float32),
        to(count, dtype=torch.float32),
        to(rate, dtype=torch.float32),
    )


class DemandNet(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.shop, self.article = nn.Embedding(SHOPS, dim), nn.Embedding(ARTICLES, dim)
        self.level = nn.Embedding(ARTICLES, 1)
        for e in (self.shop, self.article, self.level):
            nn.init.normal_(e.weight, std=0.05)
        self.mlp = nn.Sequential(
            nn.Linear(2 * dim + 8, 128), nn.SiLU(), nn.Linear(128, 128), nn.SiLU(), nn.Linear(128, 1)
        )

    def forward(self, shop, article, feats):
        h = torch.cat([self.shop(shop), self.article(article), feats], 1)
        return (self.mlp(h) + self.level(article)).squeeze(1)


def neg_log_lik(log_rate, count):
    """negative binomial with fixed shape, summed over the batch, without the terms in count alone"""
    log_total = torch.logaddexp(log_rate, torch.tensor(SHAPE).log())
    nll = (count + SHAPE) * log_total - count * log_rate - SHAPE * np.log(SHAPE)
    return nll.sum()


def main():
    shop, article, feats, count, rate = make_sales()
    cut = N - 4000
    loader = DataLoader(
        TensorDataset(shop[:cut], article[:cut], feats[:cut], count[:cut]), batch_size=BATCH, shuffle=True
    )
    model = DemandNet()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    step = 0
    for epoch in range(EPOCHS):
        for batch in loader:
            s, a, f, c = batch
            loss = neg_log_lik(model(s, a, f), c)
            opt.zero_grad()
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            opt.step()
            if step % 20 == 0 or len(c) < BATCH:
                print(
                    f"epoch {epoch} step {step:4d}  loss {loss.item():10.1f}  grad norm {norm.item():9.1f}  rows {len(c)}"
                    f"  biggest count {int(c.max())}"
                )
            step += 1
        model.eval()
        with torch.no_grad():
            mine = neg_log_lik(model(shop[cut:], article[cut:], feats[cut:]), count[cut:]) / 4000
            true = neg_log_lik(rate[cut:].log(), count[cut:]) / 4000
        model.train()
        print(f"epoch {epoch}: held-out nll per row {mine:.3f}  (true rates {true:.3f})")


if __name__ == "__main__":
    main()
