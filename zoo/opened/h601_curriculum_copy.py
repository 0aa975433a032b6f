# expect: healthy
# symptom: the loss jumps up three times in the run and the gradient norm with it (resembles a loss spike or a bad batch)
# axis: none
# cause: healthy: a curriculum makes the sequences longer at fixed steps, the task becomes harder at once, and each time the loss comes down again to near zero
# says: none
# onset_step: none
# fix: none
# mended: none
import random

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(17)
random.seed(17)

# sort the letters of a word: "dbca>abcd"
LETTERS = "abcdefghijkl"
ID = {c: i + 2 for i, c in enumerate(LETTERS)}
PAD, SEP = 0, 1
MAX_LEN = 12
STAGES = [(0, 4), (100, 6), (200, 8), (300, 10)]


def stage_length(step):
    return max(n for s, n in STAGES if step >= s)


def batch(n, length):
    src = torch.stack([torch.tensor([ID[c] for c in random.sample(LETTERS, length)]) for _ in range(n)])
    tgt = src.sort(1).values
    seq = torch.cat([src, torch.full((n, 1), SEP), tgt], 1)
    return seq[:, :-1], seq[:, 1:]


class Decoder(nn.Module):
    def __init__(self, d=48, heads=4, layers=2):
        super().__init__()
        self.tok = nn.Embedding(len(LETTERS) + 2, d)
        self.pos = nn.Embedding(2 * MAX_LEN + 1, d)
        layer = nn.TransformerEncoderLayer(d, heads, 4 * d, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.out = nn.Linear(d, len(LETTERS) + 2)

    def forward(self, x, length):
        # positions are counted from the separator, so that answers of all stages begin at the same place
        pos = torch.arange(x.size(1)) - length + MAX_LEN
        mask = nn.Transformer.generate_square_subsequent_mask(x.size(1))
        return self.out(self.body(self.tok(x) + self.pos(pos), mask=mask, is_causal=True))


def step_loss(model, x, y, length):
    logits = model(x, length)[:, length:]
    return F.cross_entropy(logits.flatten(0, 1), y[:, length:].flatten())


@torch.no_grad()
def solved(model, length, n=200):
    x, y = batch(n, length)
    seq = x[:, : length + 1]
    for _ in range(length):
        seq = torch.cat([seq, model(seq, length)[:, -1].argmax(-1, keepdim=True)], 1)
    return (seq[:, length + 1 :] == y[:, length:]).all(1).float().mean().item()


model = Decoder()
opt = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 3e-3, total_steps=480, pct_start=0.08)
length = 0
for step in range(480):
    if stage_length(step) != length:
        length = stage_length(step)
        print(f"-- words of {length} letters from step {step}")
    x, y = batch(48, length)
    loss = step_loss(model, x, y, length)
    opt.zero_grad()
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 10 == 1 or step == 479:
        print(f"step {step + 1} loss {loss.item():.4f} grad norm {norm.item():.3f}", flush=True)
for n in (6, 8, 10):
    print(f"sorted correctly, {n} letters: {solved(model, n):.3f}")
