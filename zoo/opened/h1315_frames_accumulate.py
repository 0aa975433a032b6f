# expect: healthy
# symptom: the loss is a sum that is not averaged before backward, gradients are cleared right after the optimizer step and divided by hand by the number of frames, the schedule moves per optimizer step and not per epoch
# axis: none
# mended: none
import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
IGNORE = -100


class Utterances(Dataset):
    """Frame labelling: sequences of phones of random length, each phone is a noisy spectral shape."""

    def __init__(self, n, phones, bins, seed):
        base = torch.Generator().manual_seed(42)
        self.shapes = torch.randn(phones, bins, generator=base)
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            segs = torch.randint(2, 12, (1,), generator=g).item()
            y = torch.cat(
                [
                    torch.full(
                        (int(torch.randint(2, 7, (1,), generator=g)),), int(torch.randint(0, phones, (1,), generator=g))
                    )
                    for _ in range(segs)
                ]
            )
            x = self.shapes[y]
            x = 0.5 * x + 0.5 * torch.roll(x, 1, 0) + 1.5 * torch.randn(x.shape, generator=g)
            self.items.append((x, y))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    batch = sorted(batch, key=lambda t: -len(t[1]))
    xs, ys = zip(*batch)
    return (
        pad_sequence(xs, batch_first=True),
        torch.tensor([len(y) for y in ys]),
        pad_sequence(ys, batch_first=True, padding_value=IGNORE),
    )


class Tagger(nn.Module):
    def __init__(self, bins, phones, h=48):
        super().__init__()
        self.inp = nn.Linear(bins, h)
        self.rnn = nn.LSTM(h, h, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * h, phones)

    def forward(self, x, lengths):
        p = pack_padded_sequence(F.relu(self.inp(x)), lengths, batch_first=True)
        return self.out(pad_packed_sequence(self.rnn(p)[0], batch_first=True)[0])


class AccumulatingTrainer:
    def __init__(self, args):
        self.a = args
        self.model = Tagger(args.bins, args.phones)
        self.train = DataLoader(
            Utterances(640, args.phones, args.bins, 1), args.micro, shuffle=True, collate_fn=collate
        )
        self.test = DataLoader(Utterances(100, args.phones, args.bins, 2), 100, collate_fn=collate)
        self.opt = torch.optim.AdamW(self.model.parameters(), lr=args.lr)
        updates = args.epochs * (len(self.train) // args.accum)
        self.sched = torch.optim.lr_scheduler.OneCycleLR(self.opt, args.lr, total_steps=updates)
        self.frames, self.total, self.update = 0, 0.0, 0

    def micro_step(self, x, lengths, y):
        logits = self.model(x, lengths)
        loss = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=IGNORE, reduction="sum")
        loss.backward()
        self.frames += int((y != IGNORE).sum())
        self.total += loss.item()

    def apply(self):
        for p in self.model.parameters():
            p.grad.div_(self.frames)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.opt.step()
        self.opt.zero_grad(set_to_none=True)
        self.sched.step()
        if self.update % 10 == 0:
            print(
                f"update {self.update} frames {self.frames} summed loss {self.total:.1f} "
                f"per frame {self.total / self.frames:.4f}",
                flush=True,
            )
        self.frames, self.total = 0, 0.0
        self.update += 1

    def fit(self):
        for epoch in range(self.a.epochs):
            for i, batch in enumerate(self.train, 1):
                self.micro_step(*batch)
                if i % self.a.accum == 0:
                    self.apply()
            print(f"epoch {epoch} frame error {self.error():.3f}", flush=True)

    @torch.no_grad()
    def error(self):
        x, lengths, y = next(iter(self.test))
        keep = y != IGNORE
        return (self.model(x, lengths).argmax(-1)[keep] != y[keep]).float().mean().item()


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--phones", type=int, default=12)
    p.add_argument("--bins", type=int, default=16)
    p.add_argument("--micro", type=int, default=8)
    p.add_argument("--accum", type=int, default=4)
    p.add_argument("--epochs", type=int, default=8)
    p.add_argument("--lr", type=float, default=5e-3)
    torch.manual_seed(29)
    AccumulatingTrainer(p.parse_args()).fit()
