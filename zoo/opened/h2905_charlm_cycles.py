# expect: healthy
# symptom: resembles an unstable run: the loss climbs at each restart of the rate, where the optimizer is also built anew
# axis: optimizer
"""Character LSTM on generated recipe text, trained with truncated BPTT and plain SGD in snapshot cycles.

Every cycle starts with a high rate and a fresh optimizer and leaves one snapshot; the snapshots are
averaged in probability space at the end (snapshot ensemble).
"""

import copy
import math
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)

LANES, BPTT = 32, 32
CYCLES, CYCLE_LEN = 4, 110
LR_MAX, LR_MIN, CLIP = 4.0, 0.05, 0.5

VERBS = "chop slice dice boil fry roast mix stir peel rinse bake grate".split()
THINGS = "onions carrots potatoes beans lentils mushrooms peppers tomatoes leeks apples".split()
HOW = "finely gently slowly twice well".split()
TOOLS = "pan pot bowl oven wok".split()


def recipe(rng):
    out = []
    for n in range(1, rng.randint(3, 6)):
        a, b = rng.sample(THINGS, 2)
        form = rng.randrange(3)
        if form == 0:
            s = f"{rng.choice(VERBS)} the {a} {rng.choice(HOW)}."
        elif form == 1:
            s = f"{rng.choice(VERBS)} {rng.randint(2, 9)} {a} with the {b} in a {rng.choice(TOOLS)}."
        else:
            s = f"add {a} to the {rng.choice(TOOLS)} and {rng.choice(VERBS)} for {rng.randint(1, 6) * 5} minutes."
        out.append(f"{n}. {s}")
    return " ".join(out) + "\n"


def corpus(n_chars, seed):
    rng = random.Random(seed)
    parts, total = [], 0
    while total < n_chars:
        parts.append(recipe(rng))
        total += len(parts[-1])
    return "".join(parts)[:n_chars]


class CharLSTM(nn.Module):
    def __init__(self, vocab, dim=112):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.rnn = nn.LSTM(dim, dim, batch_first=True)
        self.bias = nn.Parameter(torch.zeros(vocab))
        nn.init.uniform_(self.emb.weight, -0.1, 0.1)

    def forward(self, ids, state):
        h, state = self.rnn(self.emb(ids), state)
        return h @ self.emb.weight.T + self.bias, state


def lanes(ids, n):
    usable = len(ids) // n * n
    return ids[:usable].view(n, -1)


@torch.no_grad()
def nll(models, ids):
    total, count, states = 0.0, 0, [None] * len(models)
    for k in range(0, ids.size(1) - 1, 100):
        x, y = ids[:, k : k + 100], ids[:, k + 1 : k + 101]
        x = x[:, : y.size(1)]
        probs = 0
        for j, m in enumerate(models):
            logits, states[j] = m(x, states[j])
            probs = probs + logits.softmax(-1) / len(models)
        total += F.nll_loss(probs.clamp_min(1e-9).log().flatten(0, 1), y.flatten(), reduction="sum").item()
        count += y.numel()
    return total / count


def main():
    torch.manual_seed(17)
    text, held = corpus(130_000, 1), corpus(12_000, 2)
    chars = sorted(set(text + held))
    stoi = {c: i for i, c in enumerate(chars)}
    train = lanes(torch.tensor([stoi[c] for c in text]), LANES)
    valid = lanes(torch.tensor([stoi[c] for c in held]), 8)
    model, snapshots = CharLSTM(len(chars)), []
    print(f"{len(chars)} symbols, uniform loss {math.log(len(chars)):.3f}, start {nll([model], valid):.3f}")

    cursor, state, step = 0, None, 0
    for cycle in range(CYCLES):
        optimizer = torch.optim.SGD(model.parameters(), lr=LR_MAX)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=CYCLE_LEN, eta_min=LR_MIN)
        for _ in range(CYCLE_LEN):
            if cursor + BPTT + 1 > train.size(1):
                cursor, state = 0, None
            x, y = train[:, cursor : cursor + BPTT], train[:, cursor + 1 : cursor + BPTT + 1]
            cursor += BPTT
            if state is not None:
                state = tuple(s.detach() for s in state)
            logits, state = model(x, state)
            loss = F.cross_entropy(logits.flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            scheduler.step()
            step += 1
            if step % 11 == 0:
                print(f"cycle {cycle} step {step:3d} lr {scheduler.get_last_lr()[0]:.2f} loss {loss.item():.4f}")
        snapshots.append(copy.deepcopy(model).eval())
        print(f"cycle {cycle} done: held-out {nll([model], valid):.4f}")
    print(f"last two snapshots together: held-out {nll(snapshots[-2:], valid):.4f}")


if __name__ == "__main__":
    main()
