# expect: sick
# symptom: the loss becomes negative, runs off ever faster to minus infinity and ends as NaN
# axis: loss
# cause: the triplet loss lacks the hinge (relu/clamp at zero), so it is unbounded below and distances explode
# says: hinge|clamp|unbounded|(lower|not) bound|bounded below|(no|without|missing|lack) .{0,5}(relu|max)
# onset_step: 0
# fix: apply relu to d_pos - d_neg + margin before the mean
# mended: the script applies that change if the environment has MENDED=1
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)
MENDED = os.environ.get("MENDED") == "1"

N_PRODUCTS, VIEWS, DIM = 60, 20, 40


def make_catalogue(seed=0):
    """Descriptor vectors of photos: product identity in a nonlinear mix, plus lighting and pose nuisance."""
    g = torch.Generator().manual_seed(seed)
    identity = torch.randn(N_PRODUCTS, 6, generator=g)
    mix = torch.randn(6, DIM, generator=g) / 6**0.5
    pose_mix = torch.randn(8, DIM, generator=g) / 8**0.5
    pid = torch.arange(N_PRODUCTS).repeat_interleave(VIEWS)
    pose = torch.randn(len(pid), 8, generator=g)
    x = torch.tanh(identity[pid] @ mix) + 1.2 * pose @ pose_mix + 0.1 * torch.randn(len(pid), DIM, generator=g)
    return x, pid


class TripletSampler:
    def __init__(self, x, pid, seed=1):
        self.x, self.pid = x, pid
        self.g = torch.Generator().manual_seed(seed)
        self.by_product = [torch.nonzero(pid == k).squeeze(1) for k in pid.unique()]

    def draw(self, n):
        k = len(self.by_product)
        p = torch.randint(0, k, (n,), generator=self.g)
        q = (p + torch.randint(1, k, (n,), generator=self.g)) % k
        a, b, c = [], [], []
        for i, j in zip(p.tolist(), q.tolist()):
            own, other = self.by_product[i], self.by_product[j]
            pick = torch.randperm(len(own), generator=self.g)[:2]
            a.append(own[pick[0]])
            b.append(own[pick[1]])
            c.append(other[torch.randint(0, len(other), (1,), generator=self.g).item()])
        return self.x[torch.stack(a)], self.x[torch.stack(b)], self.x[torch.stack(c)]


class Embedder(nn.Module):
    def __init__(self, out=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(DIM, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, out))

    def forward(self, x):
        return self.net(x)


class TripletLoss(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.margin = margin

    def forward(self, anchor, positive, negative):
        d_pos = (anchor - positive).pow(2).sum(dim=1)
        d_neg = (anchor - negative).pow(2).sum(dim=1)
        gap = d_pos - d_neg + self.margin
        return (F.relu(gap) if MENDED else gap).mean()


@torch.no_grad()
def recall_at_1(model, x, pid):
    e = model(x)
    d = (e.unsqueeze(1) - e.unsqueeze(0)).pow(2).sum(-1)
    d.fill_diagonal_(float("inf"))
    return (pid[d.argmin(dim=1)] == pid).float().mean().item()


def main():
    x, pid = make_catalogue()
    held = torch.arange(len(pid)) % VIEWS >= 15
    sampler = TripletSampler(x[~held], pid[~held])
    model = Embedder()
    criterion = TripletLoss(margin=1.0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.004, momentum=0.9)
    print(f"recall@1 before training {recall_at_1(model, x[held], pid[held]):.3f}")
    for step in range(400):
        a, p, n = sampler.draw(64)
        ea, ep, en = model(torch.cat([a, p, n])).chunk(3)
        loss = criterion(ea, ep, en)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step:4d} loss {loss.item():.4g} emb norm {ea.norm(dim=1).mean().item():.4g}")
    print(f"final loss {loss.item():.4g} recall@1 {recall_at_1(model, x[held], pid[held]):.3f}")


if __name__ == "__main__":
    main()
