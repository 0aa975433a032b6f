# expect: sick
# symptom: the click model's loss hardly falls; the same recipe learns well on the old cluster
# axis: precision
# cause: the weights themselves are bfloat16, and most Adam updates of 5e-5 are smaller than half a bf16 step and round away
# says: (bf16|bfloat16|half.?precision|low.?precision|16.?bit).{0,100}(round|lost|vanish|too coarse|too small|no[- ]op|master|swallow|parameter|weight|update|float32|fp32)|(updates?|steps?).{0,60}(round(ed|s|ing)?|lost|swallow|below|smaller|under).{0,60}(bf16|bfloat16|precision|resolution|ulp|half a|zero|away)|master (weight|cop)|(weights?|param\w*|model).{0,30}(bf16|bfloat16)
# onset_step: 1
# fix: keep float32 weights and use autocast for the arithmetic
# mended: MENDED=1
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(2)
MENDED = os.environ.get("MENDED") == "1"


def impressions(n=40000, seed=2):
    g = np.random.default_rng(seed)
    user, item, hour = g.integers(0, 300, n), g.integers(0, 120, n), g.integers(0, 24, n)
    price = g.lognormal(3, 0.6, n)
    u, v = g.normal(size=(300, 4)), g.normal(size=(120, 4))
    bias = g.normal(0, 0.8, 120)
    logit = 1.1 * (u[user] * v[item]).sum(1) + bias[item] - 2.0 * (np.log(price) - 3) + np.sin(hour / 24 * 6.28)
    click = g.random(n) < 1 / (1 + np.exp(-logit))
    dense = np.stack([(np.log(price) - 3) / 0.6, np.sin(hour / 24 * 6.28), np.cos(hour / 24 * 6.28)], 1)
    ids = np.stack([user, item], 1)
    return torch.tensor(ids), torch.tensor(dense, dtype=torch.float32), torch.tensor(click, dtype=torch.float32)


class ClickNet(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.user, self.item = nn.Embedding(300, dim), nn.Embedding(120, dim)
        self.mlp = nn.Sequential(
            nn.Linear(dim * 3 + 3, 256), nn.LayerNorm(256), nn.ReLU(),
            nn.Linear(256, 128), nn.LayerNorm(128), nn.ReLU(),
            nn.Linear(128, 1),
        )  # fmt: skip

    def forward(self, ids, dense):
        u, v = self.user(ids[:, 0]), self.item(ids[:, 1])
        return self.mlp(torch.cat([u, v, u * v, dense.to(u.dtype)], 1)).squeeze(1)


def main():
    ids, dense, click = impressions()
    train = DataLoader(TensorDataset(ids[:36000], dense[:36000], click[:36000]), batch_size=256, shuffle=True)
    model = ClickNet()
    if not MENDED:
        model = model.to(torch.bfloat16)
    opt = torch.optim.AdamW(model.parameters(), lr=5e-5, weight_decay=0.0)
    step = 0
    for epoch in range(4):
        total = 0.0
        for b_ids, b_dense, b_click in train:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MENDED):
                logit = model(b_ids, b_dense)
            loss = F.binary_cross_entropy_with_logits(logit.float(), b_click)
            opt.zero_grad()
            loss.backward()
            opt.step()
            step += 1
            total += loss.item()
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}")
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16, enabled=MENDED):
            p = model(ids[36000:], dense[36000:]).float()
            val = F.binary_cross_entropy_with_logits(p, click[36000:]).item()
        print(f"epoch {epoch} train {total / len(train):.4f} valid {val:.4f}")


if __name__ == "__main__":
    main()
