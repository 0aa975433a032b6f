# expect: sick
# symptom: when the batch is enlarged at step 320 to calm the end of training, the loss jumps up and gets stuck or diverges
# axis: loss
# cause: the losses of the micro-batches are summed and not divided by their number, so from step 320 the gradient is sixteen times as large
# says: (accumul\w*|micro-?\s?batch\w*).{0,140}(divid\w*|normali[sz]\w*|averag\w*|scal\w*|sum\w*|times|mean|larger|grow|too large|multipl\w*|factor)|(divid\w*|normali[sz]\w*|averag\w*|scal\w*|sum\w*|mean|larger|times|multipl\w*).{0,100}(accumul\w*|micro-?\s?batch\w*)
# onset_step: 320
# fix: divide the loss of each micro-batch by the number of micro-batches
# mended: MENDED=1
import os
import random

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(29)
CONTEXT = 5
CHARS = ".abcdefghijklmnopqrstuvwxyz"


def names(n, seed=29):
    r = random.Random(seed)
    start = ["ka", "mi", "jo", "el", "sa", "be", "ru", "al", "no", "ti", "fra", "gre", "lu", "da"]
    middle = ["li", "ra", "n", "sha", "tte", "ri", "vi", "mo", "", "be", "do"]
    end = ["na", "s", "a", "el", "rd", "ne", "o", "ia", "th", "ko", "ra"]
    return [r.choice(start) + r.choice(middle) + r.choice(middle) + r.choice(end) for _ in range(n)]


def examples(words):
    xs, ys = [], []
    for w in words:
        ctx = [0] * CONTEXT
        for ch in w + ".":
            xs.append(ctx)
            ys.append(CHARS.index(ch))
            ctx = [*ctx[1:], ys[-1]]
    return torch.tensor(xs), torch.tensor(ys)


class NameModel(nn.Module):
    def __init__(self, emb=16, hidden=128):
        super().__init__()
        self.emb = nn.Embedding(len(CHARS), emb)
        self.net = nn.Sequential(
            nn.Linear(CONTEXT * emb, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, len(CHARS)),
        )

    def forward(self, x):
        return self.net(self.emb(x).flatten(1))


def micro_batches(step):
    return 1 if step < 320 else 16


def main():
    x, y = examples(names(5000))
    cut = int(0.9 * len(x))
    model = NameModel()
    opt = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-5)
    for step in range(1, 481):
        opt.zero_grad()
        n = micro_batches(step)
        total = 0.0
        for _ in range(n):
            b = torch.randint(0, cut, (64,))
            loss = F.cross_entropy(model(x[b]), y[b])
            total += loss.item()
            if os.environ.get("MENDED") == "1":
                loss = loss / n
            loss.backward()
        opt.step()
        if step % 20 == 0 or 320 <= step < 326:
            print(f"step {step} micro {n} loss {total / n:.4f}")
        if step % 120 == 0:
            with torch.no_grad():
                print(f"   valid {F.cross_entropy(model(x[cut:]), y[cut:]).item():.4f}")


if __name__ == "__main__":
    main()
