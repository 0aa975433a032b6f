# expect: healthy
# symptom: resembles a missing zero_grad: several backward calls without clearing the gradients, and loss values in the hundreds
# axis: optimizer
# cause: gradients of four micro-batches are summed on purpose, divided by the number of predicted items, and cleared right after each optimizer step
# says: none
# onset_step: none
# fix: none
# mended: none
import itertools
import random

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.set_num_threads(1)

ITEMS = 120
ACCUMULATE = 4
UPDATES = 400


def sessions(seed):
    """Endless stream of shopping sessions; buyers mostly go on to one of two related items."""
    rng = random.Random(seed)
    table = random.Random(0)
    related = {i: [table.randint(1, ITEMS), table.randint(1, ITEMS)] for i in range(1, ITEMS + 1)}
    while True:
        item = rng.randint(1, ITEMS)
        out = [item]
        for _ in range(rng.randint(2, 16)):
            item = rng.choices(related[item] + [rng.randint(1, ITEMS)], weights=(6, 3, 1))[0]
            out.append(item)
        yield out


def micro_batches(stream, size):
    while True:
        rows = [torch.tensor(s) for s in itertools.islice(stream, size)]
        ids = pad_sequence(rows, batch_first=True)
        yield ids[:, :-1], ids[:, 1:]


class GRU4Rec(nn.Module):
    def __init__(self, d=64):
        super().__init__()
        self.items = nn.Embedding(ITEMS + 1, d, padding_idx=0)
        self.gru = nn.GRU(d, d, batch_first=True)
        self.drop = nn.Dropout(0.1)
        self.out = nn.Linear(d, ITEMS + 1)

    def forward(self, ids):
        h, _ = self.gru(self.drop(self.items(ids)))
        return self.out(h)


def hit_rate(model, stream, k=3):
    model.eval()
    hits = n = 0
    with torch.no_grad():
        for ids, target in itertools.islice(stream, 4):
            top = model(ids).topk(k, -1).indices
            real = target != 0
            hits += (top == target[..., None]).any(-1)[real].sum().item()
            n += real.sum().item()
    model.train()
    return hits / n


def main():
    torch.manual_seed(6)
    train, valid = micro_batches(sessions(1), 16), micro_batches(sessions(2), 64)
    model = GRU4Rec()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, total_steps=UPDATES)
    seen = 0
    for micro, (ids, target) in enumerate(train, 1):
        loss = F.cross_entropy(model(ids).transpose(1, 2), target, ignore_index=0, reduction="sum")
        loss.backward()
        seen += int((target != 0).sum())
        if micro % ACCUMULATE:
            continue
        for p in model.parameters():
            p.grad.div_(seen)
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        seen = 0
        update = micro // ACCUMULATE
        if update % 40 == 0:
            print(f"update {update} micro-batch loss {loss.item():.1f} hit@3 {hit_rate(model, valid):.3f}")
        if update == UPDATES:
            break


if __name__ == "__main__":
    main()
