# expect: healthy
# symptom: two optimizers share one backward, the gradients of the centres are multiplied by 200 in place before their step, and the printed loss is a sum of terms of which one begins large
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(15)

N_ID, N_NEW, T, FEAT, EMB, BATCH, STEPS = 40, 20, 40, 16, 32, 80, 500
ALPHA = 0.005
g0 = np.random.default_rng(3)
voice = g0.normal(0, 1, (N_ID + N_NEW, FEAT))
mod = g0.uniform(0.2, 1.5, (N_ID + N_NEW, 3))
basis = g0.normal(0, 1, (3, FEAT))


def clips(ids, r):
    """Feature frames of a speaker: a mean spectrum, three modulations at own rates, and what is said (noise)."""
    t = np.arange(T)[None, :, None]
    ph = r.uniform(0, 2 * np.pi, (len(ids), 1, 3))
    m = np.sin(mod[ids][:, None, :] * t + ph)
    x = 0.45 * voice[ids][:, None] + 0.5 * m @ basis + 1.1 * r.normal(size=(len(ids), T, FEAT))
    x = x + 0.4 * r.normal(size=(len(ids), 1, FEAT))
    return torch.from_numpy(x).float(), torch.from_numpy(ids)


class SpeakerNet(nn.Module):
    def __init__(self, h=64):
        super().__init__()
        self.c1 = nn.Conv1d(FEAT, h, 5, padding=2)
        self.c2 = nn.Conv1d(h, h, 3, padding=2, dilation=2)
        self.n1, self.n2 = nn.BatchNorm1d(h), nn.BatchNorm1d(h)
        self.att = nn.Conv1d(h, h, 1)
        self.emb = nn.Linear(2 * h, EMB)
        self.cls = nn.Linear(EMB, N_ID)

    def forward(self, x):
        h = F.relu(self.n1(self.c1(x.transpose(1, 2))))
        h = F.relu(self.n2(self.c2(h)))
        w = self.att(h).softmax(-1)
        mu = (w * h).sum(-1)
        sd = ((w * h * h).sum(-1) - mu**2).clamp(min=1e-4).sqrt()
        e = self.emb(torch.cat([mu, sd], 1))
        return e, self.cls(F.relu(e))


class CenterLoss(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.centers = nn.Parameter(torch.randn(n, d))

    def forward(self, e, y):
        return (e - self.centers[y]).pow(2).sum(1).clamp(1e-12, 1e12).mean()


@torch.no_grad()
def verification_auc(net, seed=9):
    net.eval()
    ids = np.repeat(np.arange(N_ID, N_ID + N_NEW), 12)
    x, y = clips(ids, np.random.default_rng(seed))
    e = F.normalize(net(x)[0], dim=-1)
    net.train()
    s, same = e @ e.t(), y[:, None] == y[None]
    off = ~torch.eye(len(y), dtype=torch.bool)
    pos, neg = s[same & off], s[~same]
    neg = neg.sort().values
    return (torch.searchsorted(neg, pos).float() / len(neg)).mean().item()


def main():
    r = np.random.default_rng(0)
    net, center = SpeakerNet(), CenterLoss(N_ID, EMB)
    opt = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-3)
    opt_center = torch.optim.SGD(center.parameters(), lr=0.5)
    sched = torch.optim.lr_scheduler.StepLR(opt, 200, 0.3)
    print(f"AUC on unseen speakers before training {verification_auc(net):.3f}")
    for step in range(STEPS):
        x, y = clips(r.integers(0, N_ID, BATCH), r)
        e, logits = net(x)
        ce, ct = F.cross_entropy(logits, y), center(e, y)
        loss = ce + ALPHA * ct
        opt.zero_grad()
        opt_center.zero_grad()
        loss.backward()
        # the weight of the centre term is for the network; the centres move at their own rate
        for p in center.parameters():
            p.grad.mul_(1.0 / ALPHA)
        opt.step()
        opt_center.step()
        sched.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.4f} ce {ce.item():.4f} center {ct.item():.2f}", flush=True)
        if (step + 1) % 125 == 0:
            print(f"step {step} AUC on unseen speakers {verification_auc(net):.3f}", flush=True)


if __name__ == "__main__":
    main()
