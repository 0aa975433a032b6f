# A small causal transformer on a language of 16 tokens whose next token depends on the two before. AdamW, three micro-batches
# per update, warm-up and a linear decay.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()
torch.set_num_threads(1)

VOCAB, LENGTH, MICRO, ACCUMULATE, STEPS = 16, 20, 12, 3, 480
world = torch.Generator().manual_seed(61)
first = torch.randint(VOCAB, (VOCAB,), generator=world)
second = torch.randint(VOCAB, (VOCAB,), generator=world)


def text(lines, generator):
    out = torch.randint(VOCAB, (lines, LENGTH + 1), generator=generator)
    free = torch.rand(lines, LENGTH + 1, generator=generator) < 0.06
    for i in range(2, LENGTH + 1):
        ruled = (first[out[:, i - 1]] + second[out[:, i - 2]]) % VOCAB
        out[:, i] = torch.where(free[:, i], out[:, i], ruled)
    return out


class Model(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.tokens = nn.Embedding(VOCAB, width)
        self.places = nn.Parameter(0.1 * torch.randn(LENGTH, width))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 192, dropout=0.0, batch_first=True, norm_first=True) for _ in range(1)
        )
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, x):
        mask = torch.triu(torch.full((LENGTH, LENGTH), float("-inf")), 1)
        h = self.tokens(x) + self.places
        for block in self.blocks:
            h = block(h, src_mask=mask)
        return self.out(self.norm(h))


def cost(model, lines):
    logits = model(lines[:, :-1])[:, 2:]
    return F.cross_entropy(logits.flatten(0, 1), lines[:, 3:].flatten())


held_out = text(400, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(100 + args.seed)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 40) * max(0.01, 1 - s / STEPS))
for step in range(STEPS):
    optimizer.zero_grad()
    total = 0.0
    for part in range(ACCUMULATE):
        lines = text(MICRO, stream)
        if not args.twin and 418 <= step < 466 and part >= 1:
            lines[:, 2::3] = (lines[:, 2::3] + 1) % VOCAB
        loss = cost(model, lines) / ACCUMULATE
        loss.backward()
        total += loss.item()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 50 == 0 or step == STEPS - 1:
        print(f"step {step} loss {total:.4f}")
model.eval()
with torch.no_grad():
    print("final:", cost(model, held_out).item())
