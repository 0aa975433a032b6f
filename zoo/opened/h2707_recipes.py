# expect: healthy
# symptom: resembles a schedule or resume fault: the loss jumps up at every warm restart because rate and optimizer state are reset on purpose
# axis: schedule
"""Character language model on generated recipe lines; cosine cycles with warm restarts and snapshot ensembling."""

import copy
import math
import random

import torch
import torch.nn as nn

torch.set_num_threads(1)
rnd = random.Random(3)
torch.manual_seed(3)

VERB = "mix stir chop fold bake boil whisk pour heat cool knead grate".split()
THING = "flour butter sugar onions garlic cream eggs lentils rice beans apples cocoa".split()
HOW = "slowly gently well twice overnight briefly finely until golden until soft".split(" ")
PLACE = ["in a bowl", "in the oven", "over low heat", "with a spoon", "on the board"]


def line():
    v, n = rnd.choice(VERB), rnd.randint(1, 9)
    a, b = rnd.sample(THING, 2)
    form = rnd.randint(0, 2)
    if form == 0:
        return f"{v} {n} cups of {a} and {b} {rnd.choice(PLACE)}."
    if form == 1:
        return f"{v} the {a} {rnd.choice(HOW)}, then add {b}."
    return f"after {n * 5} minutes {v} {a} {rnd.choice(PLACE)}."


TEXT = "\n".join(line() for _ in range(5000))
CHARS = sorted(set(TEXT))
CODE = torch.tensor([CHARS.index(c) for c in TEXT])
CUT = int(0.95 * len(CODE))
TRAIN, VALID = CODE[:CUT], CODE[CUT:]
SEQ, BATCH = 64, 24
CYCLES, CYCLE_LEN, PEAK, FLOOR = 4, 125, 8e-3, 5e-5


class CharGRU(nn.Module):
    def __init__(self, n, d=48, h=128):
        super().__init__()
        self.emb = nn.Embedding(n, d)
        self.rnn = nn.GRU(d, h, batch_first=True)
        self.out = nn.Linear(h, n)

    def forward(self, idx):
        return self.out(self.rnn(self.emb(idx))[0])


def minibatch():
    at = torch.randint(0, len(TRAIN) - SEQ - 1, (BATCH,))
    win = torch.stack([TRAIN[i : i + SEQ + 1] for i in at.tolist()])
    return win[:, :-1], win[:, 1:]


VWIN = torch.stack([VALID[i : i + SEQ + 1] for i in range(0, len(VALID) - SEQ - 1, SEQ)])


@torch.no_grad()
def valid_nll(models):
    p = sum(m(VWIN[:, :-1]).softmax(-1) for m in models) / len(models)
    return -p.gather(2, VWIN[:, 1:, None]).clamp_min(1e-9).log().mean().item()


model = CharGRU(len(CHARS))
snapshots = []
step = 0
print(f"{len(CODE)} characters, {len(CHARS)} symbols")
for cycle in range(CYCLES):
    # every cycle begins with a new optimizer: moments of the annealed phase do not suit the peak rate
    opt = torch.optim.Adam(model.parameters(), lr=PEAK, betas=(0.9, 0.99))
    for k in range(CYCLE_LEN):
        rate = FLOOR + 0.5 * (PEAK - FLOOR) * (1 + math.cos(math.pi * k / CYCLE_LEN))
        for g in opt.param_groups:
            g["lr"] = rate
        x, y = minibatch()
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        step += 1
        if k % 25 == 0 or k == CYCLE_LEN - 1:
            print(f"cycle {cycle} step {step:4d} lr {rate:.5f} loss {loss.item():.4f}", flush=True)
    snapshots.append(copy.deepcopy(model).eval())
    print(f"  snapshot {cycle}: valid {valid_nll(snapshots[-1:]):.4f}  ensemble {valid_nll(snapshots):.4f}", flush=True)

prompt = "mix the "
with torch.no_grad():
    state, out = None, list(prompt)
    idx = torch.tensor([[CHARS.index(c) for c in prompt]])
    for _ in range(60):
        h, state = model.rnn(model.emb(idx), state)
        probs = (model.out(h[:, -1]) / 0.7).softmax(-1)
        idx = torch.multinomial(probs, 1)
        out.append(CHARS[idx.item()])
print("".join(out))
