# New data as planned: a letter transformer reads one language for 300 steps; after it, half of each batch is another one with other
# rules. The loss steps up and comes down again.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

LETTERS, LENGTH = 24, 24
world = torch.Generator().manual_seed(4206)
rules = torch.softmax(3 * torch.randn(2, LETTERS, LETTERS, generator=world), -1)


def texts(count, language, generator=None):
    rows = [torch.randint(LETTERS, (count,), generator=generator)]
    for _ in range(LENGTH - 1):
        rows.append(torch.multinomial(rules[language, rows[-1]], 1, generator=generator)[:, 0])
    return torch.stack(rows, 1)


class Reader(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.letter = nn.Embedding(LETTERS, width)
        self.place = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(width, 4, 96, dropout=0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(width, LETTERS)

    def forward(self, text):
        past = torch.triu(torch.full((text.shape[1], text.shape[1]), float("-inf")), 1)
        return self.out(self.body(self.letter(text) + self.place.weight[: text.shape[1]], mask=past))


def loss_of(net, text):
    return F.cross_entropy(net(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten())


held_out = torch.cat([texts(200, 0, world), texts(200, 1, world)])
torch.manual_seed(args.seed)
net = Reader()
optimizer = torch.optim.AdamW(net.parameters(), lr=3e-3)
for step in range(600):
    optimizer.param_groups[0]["lr"] = 3e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / 600)
    text = texts(24, 0) if step < 300 else torch.cat([texts(12, 0), texts(12, 1)])
    loss = loss_of(net, text)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    print("final:", loss_of(net, held_out).item())
