# expect: healthy
# symptom: the loss stays near 0.6 and the net ends in a log_softmax; resembles a doubled softmax or a stuck model
# axis: model
"""Review sentiment in three grades: transformer encoder over token streams, smoothed targets."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)
VOCAB, LEN, CLASSES, SMOOTH = 150, 24, 3, 0.15
GOOD, BAD, NOT = range(10, 30), range(30, 50), 5


class ReviewStream(IterableDataset):
    """Endless stream; each review has some graded words, a 'not' in front flips the next word."""

    def __init__(self, seed):
        self.seed = seed

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed)
        while True:
            grade = int(torch.randint(0, CLASSES, (1,), generator=g))
            toks = torch.randint(50, VOCAB, (LEN,), generator=g)
            n = 6
            spots = torch.randperm(LEN // 2, generator=g)[:n] * 2
            n_good = {0: 1, 1: 3, 2: 5}[grade]
            for j, s in enumerate(spots.tolist()):
                positive = j < n_good
                flip = bool(torch.rand(1, generator=g) < 0.2)
                pool = GOOD if positive != flip else BAD
                if flip:
                    toks[s] = NOT
                toks[s + 1] = pool[int(torch.randint(0, len(pool), (1,), generator=g))]
            yield toks, grade


class ReviewNet(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, dim)
        self.pos = nn.Embedding(LEN, dim)
        self.mix = nn.Conv1d(dim, dim, 3, padding=1)
        layer = nn.TransformerEncoderLayer(dim, 4, 96, dropout=0.05, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.out = nn.Linear(dim, CLASSES)

    def forward(self, toks):
        h = self.tok(toks) + self.pos.weight
        h = h + F.gelu(self.mix(h.transpose(1, 2))).transpose(1, 2)
        return F.log_softmax(self.out(self.body(h).mean(1)), dim=-1)


def smoothed_nll(logp, y):
    hard = F.nll_loss(logp, y)
    return (1 - SMOOTH) * hard - SMOOTH * logp.mean(dim=-1).mean()


@torch.no_grad()
def accuracy(model, loader, batches=12):
    model.eval()
    hits = total = 0
    for i, (x, y) in enumerate(loader):
        if i == batches:
            break
        hits += (model(x).argmax(-1) == y).sum().item()
        total += len(y)
    model.train()
    return hits / total


def main():
    torch.manual_seed(13)
    loader = DataLoader(ReviewStream(1), batch_size=48)
    valid = DataLoader(ReviewStream(999), batch_size=64)
    model = ReviewNet()
    steps = 400
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    for step, (x, y) in zip(range(steps), loader):
        loss = smoothed_nll(model(x), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 25 == 0 or step == steps - 1:
            print(f"step {step:4d} loss {loss.item():.4f}")
        if step % 100 == 99:
            print(f"step {step:4d} valid acc {accuracy(model, valid):.3f}")


if __name__ == "__main__":
    main()
