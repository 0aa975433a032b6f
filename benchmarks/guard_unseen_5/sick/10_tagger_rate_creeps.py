# A tagger of words: two-way LSTM, RMSprop. The rate should shrink by 0.6 % in each step; the sign got lost and it grows by 0.6 %.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

VOCABULARY, TAGS, LENGTH = 60, 6, 14
world = torch.Generator().manual_seed(4110)
usual = torch.randint(TAGS, (VOCABULARY,), generator=world)
follow = torch.randint(TAGS, (TAGS, TAGS), generator=world)


def sentences(count, generator=None):
    word = torch.randint(VOCABULARY, (count, LENGTH), generator=generator)
    tag = usual[word]
    # ambiguous words take their tag from the words on both sides
    ambiguous = word % 3 == 0
    around = follow[tag.roll(1, 1), tag.roll(-1, 1)]
    return word, torch.where(ambiguous, around, tag)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCABULARY, 32)
        self.body = nn.LSTM(32, 48, batch_first=True, bidirectional=True)
        self.tag = nn.Linear(96, TAGS)

    def forward(self, word):
        return self.tag(self.body(self.word(word))[0])


def loss_of(net, word, tag):
    return F.cross_entropy(net(word).flatten(0, 1), tag.flatten())


held_out = sentences(400, world)
torch.manual_seed(args.seed)
net = Tagger()
optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.994 if args.twin else 1.006)
for step in range(700):
    loss = loss_of(net, *sentences(32))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f} rate {schedule.get_last_lr()[0]:.5f}")
with torch.no_grad():
    print("final:", loss_of(net, *held_out).item())
