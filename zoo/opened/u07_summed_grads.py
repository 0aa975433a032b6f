# expect: healthy
# symptom: backward() is called on undivided micro-batch losses and the gradients pile up; they are divided by their number by hand just before the step
# axis: none
# mended: none
"""LSTM that counts bracket depth; a large batch in micro-batches."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MAX_DEPTH, SEQ = 7, 32


def brackets(n, rng):
    ids = np.zeros((n, SEQ), dtype=np.int64)
    depth = np.zeros((n, SEQ), dtype=np.int64)
    d = np.zeros(n, dtype=np.int64)
    for t in range(SEQ):
        r = rng.random(n)
        up = ((r < 0.4) & (d < MAX_DEPTH)) | (d == 0) & (r < 0.7)
        down = (r >= 0.4) & (r < 0.8) & (d > 0) & ~up
        d = d + up.astype(int) - down.astype(int)
        ids[:, t] = np.where(up, 0, np.where(down, 1, 2 + (r * 1000).astype(int) % 3))
        depth[:, t] = d
    return torch.from_numpy(ids), torch.from_numpy(depth)


class DepthLSTM(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.emb = nn.Embedding(5, 16)
        self.lstm = nn.LSTM(16, hidden, batch_first=True)
        self.out = nn.Linear(hidden, MAX_DEPTH + 1)

    def forward(self, ids):
        return self.out(self.lstm(self.emb(ids))[0])


def average_(params, n):
    for p in params:
        if p.grad is not None:
            p.grad.div_(n)


def main():
    torch.manual_seed(14)
    rng = np.random.default_rng(14)
    model = DepthLSTM()
    params = list(model.parameters())
    opt = torch.optim.SGD(params, lr=1.0, momentum=0.9)
    n_micro, updates = 4, 240
    for u in range(updates):
        opt.param_groups[0]["lr"] = 1.0 * min(1.0, (u + 1) / 20)
        opt.zero_grad()
        total = 0.0
        for _ in range(n_micro):
            ids, depth = brackets(16, rng)
            loss = F.cross_entropy(model(ids).flatten(0, 1), depth.flatten())
            loss.backward()
            total += loss.item()
        average_(params, n_micro)
        nn.utils.clip_grad_norm_(params, 1.0)
        opt.step()
        if u % 15 == 0 or u == updates - 1:
            print(f"update {u:3d} loss {total / n_micro:.4f}")
    ids, depth = brackets(256, rng)
    with torch.no_grad():
        print(f"depth accuracy {(model(ids).argmax(-1) == depth).float().mean().item():.4f}")


if __name__ == "__main__":
    main()
