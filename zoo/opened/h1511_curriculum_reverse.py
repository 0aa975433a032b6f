# expect: healthy
# symptom: the training loss jumps up several times at fixed steps, each time after it had come down well (a curriculum makes the sequences longer)
# axis: none
# mended: none
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

BLANK = 0


class ReverseTask:
    """Read n symbols, then n blanks; while reading the blanks say the symbols in reverse."""

    def __init__(self, n_symbols, seed):
        self.n_symbols = n_symbols
        self.g = torch.Generator().manual_seed(seed)

    def sample(self, n, batch):
        s = torch.randint(1, self.n_symbols + 1, (batch, n), generator=self.g)
        x = torch.cat([s, torch.full((batch, n), BLANK)], 1)
        return x, s.flip(1)


class Curriculum:
    def __init__(self, lengths, steps_per_stage):
        self.lengths, self.per_stage = lengths, steps_per_stage

    @property
    def total(self):
        return len(self.lengths) * self.per_stage

    def length_at(self, step):
        return self.lengths[min(step // self.per_stage, len(self.lengths) - 1)]


class Recaller(nn.Module):
    def __init__(self, n_symbols, dim, hidden):
        super().__init__()
        self.emb = nn.Embedding(n_symbols + 1, dim)
        self.rnn = nn.GRU(dim, hidden, batch_first=True)
        self.head = nn.Linear(hidden, n_symbols + 1)

    def forward(self, x):
        n = x.size(1) // 2
        out, _ = self.rnn(self.emb(x))
        return self.head(out[:, n:])


@torch.no_grad()
def evaluate(model, task, lengths):
    model.eval()
    acc = {}
    for n in lengths:
        x, y = task.sample(n, 200)
        acc[n] = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return acc


def main(args):
    torch.manual_seed(args.seed)
    task, held_out = ReverseTask(args.symbols, 1), ReverseTask(args.symbols, 2)
    curriculum = Curriculum([1, 2, 3, 4, 5], args.stage)
    model = Recaller(args.symbols, 16, args.hidden)
    opt = torch.optim.Adam(model.parameters(), lr=args.lr)
    current = None
    for step in range(curriculum.total):
        length = curriculum.length_at(step)
        if length != current:
            current = length
            print(f"--- length {length}")
        x, y = task.sample(length, args.batch)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step:4d} len {length:2d} loss {loss.item():.4f}", flush=True)
        if (step + 1) % args.stage == 0:
            acc = evaluate(model, held_out, curriculum.lengths)
            print("  eval " + " ".join(f"acc@{k} {v:.3f}" for k, v in acc.items()), flush=True)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--symbols", type=int, default=8)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--stage", type=int, default=130)
    p.add_argument("--lr", type=float, default=5e-3)
    p.add_argument("--seed", type=int, default=0)
    main(p.parse_args())
