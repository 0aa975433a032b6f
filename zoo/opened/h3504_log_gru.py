# expect: healthy
# symptom: the rate jumps at every warm restart, and out[:, -1] is read on padded input (but padding is left)
# axis: none
"""Classify machine log sessions (event codes with durations) with a GRU; SGDR schedule."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.lr_scheduler import CosineAnnealingWarmRestarts
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
CODES, CLASSES, MAX_LEN = 40, 5, 40


class Sessions(Dataset):
    """Each failure class has a typical three event motif somewhere in the session."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        motif = np.random.default_rng(77).integers(1, CODES, (CLASSES, 3))
        self.rows = []
        for _ in range(n):
            cls = int(rng.integers(0, CLASSES))
            codes = rng.integers(1, CODES, int(rng.integers(12, MAX_LEN + 1)))
            for start in rng.integers(0, len(codes) - 2, 1):
                codes[start : start + 3] = motif[cls]
            self.rows.append((codes, rng.exponential(1.0, len(codes)), cls))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def left_pad(rows):
    size = max(len(r[0]) for r in rows)
    codes = torch.zeros(len(rows), size, dtype=torch.long)
    gaps = torch.zeros(len(rows), size)
    for k, (c, g, _) in enumerate(rows):
        codes[k, size - len(c) :] = torch.as_tensor(c)
        gaps[k, size - len(g) :] = torch.as_tensor(np.log1p(g), dtype=torch.float32)
    return codes, gaps, torch.tensor([r[2] for r in rows])


class SessionNet(nn.Module):
    def __init__(self, emb=24, hidden=64):
        super().__init__()
        self.emb = nn.Embedding(CODES, emb, padding_idx=0)
        self.gru = nn.GRU(emb + 1, hidden, batch_first=True)
        self.out = nn.Linear(hidden, CLASSES)

    def forward(self, codes, gaps):
        x = torch.cat([self.emb(codes), gaps.unsqueeze(-1)], -1)
        out, _ = self.gru(x)
        return self.out(out[:, -1])


@torch.no_grad()
def accuracy(net, loader):
    net.eval()
    hit = sum((net(c, g).argmax(1) == y).sum().item() for c, g, y in loader)
    net.train()
    return hit / len(loader.dataset)


def main():
    torch.manual_seed(6)
    train = DataLoader(Sessions(3200, 1), batch_size=32, shuffle=True, collate_fn=left_pad)
    valid = DataLoader(Sessions(500, 2), batch_size=250, collate_fn=left_pad)
    net = SessionNet()
    opt = torch.optim.AdamW(net.parameters(), lr=8e-3, weight_decay=1e-3)
    sched = CosineAnnealingWarmRestarts(opt, T_0=100, eta_min=1e-5)
    step = 0
    for epoch in range(4):
        for codes, gaps, y in train:
            loss = F.cross_entropy(net(codes, gaps), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
            sched.step()
            if step % 20 == 0:
                print(f"step {step:4d} lr {opt.param_groups[0]['lr']:.5f} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} valid accuracy {accuracy(net, valid):.3f}")


if __name__ == "__main__":
    main()
