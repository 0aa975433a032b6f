# expect: sick
# symptom: the loss is fine in the first step and NaN from the second step on, embeddings all NaN
# axis: loss
# cause: hand-written pairwise euclidean distance takes sqrt of the squared distance; the diagonal (distance of a sample to itself) is zero, the derivative of sqrt at zero is infinite, and 0 * inf = NaN in the backward pass
# says: sqrt|square.?root|(gradient|derivative|backward).{0,40}(zero|0\b).{0,30}distance|distance.{0,60}(zero|diagonal|itself).{0,60}(gradient|derivative|backward|nan|inf)|missing eps.{0,40}(distance|root|norm)
# onset_step: 1
# fix: add a small epsilon under the root (or keep squared distances / mask the diagonal before the root)
# mended: adds 1e-8 under the root
import os
import time
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)

N_ID, P, K, STEPS = 40, 8, 4, 300


class Identities:
    """Each identity is a smooth random texture; views are shifted, dimmed and noisy."""

    def __init__(self):
        low = torch.randn(N_ID, 3, 6, 6)
        self.base = F.interpolate(low, size=24, mode="bilinear", align_corners=False)
        self.g = torch.Generator().manual_seed(5)

    def view(self, ids):
        x = self.base[ids]
        dx = torch.randint(-3, 4, (2,), generator=self.g).tolist()
        x = torch.roll(x, dx, dims=(2, 3))
        gain = 0.6 + 0.8 * torch.rand(len(ids), 1, 1, 1, generator=self.g)
        return x * gain + 0.5 * torch.randn(x.shape, generator=self.g)

    def batch(self):
        who = torch.randperm(N_ID, generator=self.g)[:P]
        ids = who.repeat(K)
        x = torch.cat([self.view(who) for _ in range(K)])
        return x, ids


class Embedder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 24, 3, padding=1),
            nn.BatchNorm2d(24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 48, 3, padding=1),
            nn.BatchNorm2d(48),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(48, 64, 3, padding=1),
            nn.BatchNorm2d(64),
            nn.ReLU(),
        )
        self.fc = nn.Linear(64 * 36, dim)

    def forward(self, x):
        return F.normalize(self.fc(self.net(x).flatten(1)), dim=1)


def pairwise(e):
    sq = e.pow(2).sum(1)
    d2 = (sq[:, None] + sq[None, :] - 2 * e @ e.t()).clamp(min=0)
    if MENDED:
        d2 = d2 + 1e-8
    return d2.sqrt()


def batch_hard(e, ids, margin=0.3):
    d = pairwise(e)
    same = ids[:, None] == ids[None, :]
    pos = (d * same.float()).max(dim=1).values
    neg = (d + 10.0 * same.float()).min(dim=1).values
    return F.softplus((pos - neg + margin) * 5).mean() / 5, pos.mean(), neg.mean()


@torch.no_grad()
def recall_at_1(model, data):
    model.eval()
    ids = torch.arange(N_ID)
    gal, qry = model(data.view(ids)), model(data.view(ids))
    hit = ((qry @ gal.t()).argmax(1) == ids).float().mean().item()
    model.train()
    return hit


def main():
    data, model = Identities(), Embedder()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-4)
    t0 = time.time()
    for step in range(STEPS):
        x, ids = data.batch()
        loss, dp, dn = batch_hard(model(x), ids)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step < 5 or step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} d_pos {dp.item():.3f} d_neg {dn.item():.3f}", flush=True)
        if (step + 1) % 100 == 0:
            print(f"  recall@1 {recall_at_1(model, data):.3f}  ({time.time() - t0:.1f}s)", flush=True)


if __name__ == "__main__":
    main()
