# A small causal transformer reads a synthetic genome: AdamW, warm-up, then a second phase on "long contexts" with a schedule of its own.
# The second phase's LambdaLR was written in the units of the base rate of another optimizer: from step 300 on the rate is forty times
# the one meant, on a linear way down to a tenth of it. The right answer is to roll back to the phase change and hold the rate lower.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true", help="the second schedule is in the right units")
args = parser.parse_args()
torch.set_num_threads(1)

LETTERS, STEPS, CHANGE, BATCH = 8, 520, 300, 16
world = torch.Generator().manual_seed(313)
# the next letter hangs on the last one and the one three before
table = torch.softmax(2.2 * torch.randn(LETTERS, LETTERS, LETTERS, generator=world), -1)


def genome(count, length, generator=None):
    rows = [torch.randint(0, LETTERS, (count,), generator=generator) for _ in range(3)]
    for _ in range(length - 2):
        rows.append(torch.multinomial(table[rows[-1], rows[-3]], 1, generator=generator).squeeze(1))
    return torch.stack(rows, 1)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 3 * width), nn.GELU(), nn.Linear(3 * width, width))

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        return x + self.mlp(self.norm2(x))


class Reader(nn.Module):
    def __init__(self, width=48, depth=2):
        super().__init__()
        self.letter, self.place = nn.Embedding(LETTERS, width), nn.Embedding(64, width)
        self.blocks = nn.Sequential(*[Block(width, 4) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, LETTERS)

    def forward(self, tokens):
        x = self.letter(tokens) + self.place(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


held_out = genome(128, 40, world)
torch.manual_seed(args.seed)
model = Reader()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
units = 1.0 if args.twin else 40.0
first = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 40))
schedule = first
for step in range(STEPS):
    if step == CHANGE:
        # the second phase: longer contexts, its own schedule
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: units * (1 - 0.9 * n / (STEPS - CHANGE)))
    tokens = genome(BATCH, 24 if step < CHANGE else 40)
    loss = loss_of(model, tokens)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, held_out).item())
