# A small translator: GRU encoder, GRU decoder with attention, Adam with a linear decay of the rate. In one file of the corpus the
# translations slipped by a line: from step 420 to 480 every source meets the translation of its neighbour.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

WORDS, LENGTH, STEPS = 24, 8, 560
world = torch.Generator().manual_seed(4101)
lexicon = torch.randperm(WORDS, generator=world)


def pairs(count, generator=None):
    source = torch.randint(WORDS, (count, LENGTH), generator=generator)
    target = lexicon[source].flip(1)
    # a word that follows a rare one changes its form
    target = torch.where(source.flip(1).roll(1, 1) < 4, (target + 1) % WORDS, target)
    return source, target


class Translator(nn.Module):
    def __init__(self, width=64):
        super().__init__()
        self.source = nn.Embedding(WORDS, width)
        self.target = nn.Embedding(WORDS + 1, width)
        self.encoder = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.decoder = nn.GRU(width, width, batch_first=True)
        self.key = nn.Linear(2 * width, width)
        self.out = nn.Linear(3 * width, WORDS)

    def forward(self, source, target):
        memory, _ = self.encoder(self.source(source))
        begin = torch.full_like(target[:, :1], WORDS)
        state, _ = self.decoder(self.target(torch.cat([begin, target[:, :-1]], 1)))
        weight = torch.softmax(state @ self.key(memory).transpose(1, 2) / 8, -1)
        return self.out(torch.cat([state, weight @ memory], -1))


def loss_of(model, source, target):
    return F.cross_entropy(model(source, target).flatten(0, 1), target.flatten())


held_out = pairs(512, world)
torch.manual_seed(args.seed)
model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, STEPS)
for step in range(STEPS):
    source, target = pairs(48)
    if 420 <= step < 480 and not args.twin:
        target = target.roll(1, 0)
    loss = loss_of(model, source, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 40 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
