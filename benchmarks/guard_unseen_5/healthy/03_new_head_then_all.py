# Fine-tuning: a text net learns to predict the next letter; then it gets a new head for another question (does the text run
# backwards?), trained alone at first with the body frozen, and then with everything at a lower rate.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

LETTERS, LENGTH = 16, 20
world = torch.Generator().manual_seed(4203)
table = torch.softmax(2.5 * torch.randn(LETTERS, LETTERS, generator=world), 1)


def texts(count, generator=None):
    rows = [torch.randint(LETTERS, (count,), generator=generator)]
    for _ in range(LENGTH - 1):
        rows.append(torch.multinomial(table[rows[-1]], 1, generator=generator)[:, 0])
    text = torch.stack(rows, 1)
    back = torch.rand(count, generator=generator) < 0.5
    return torch.where(back[:, None], text.flip(1), text), back.float()


class Body(nn.Module):
    def __init__(self):
        super().__init__()
        self.letter = nn.Embedding(LETTERS, 48)
        self.rnn = nn.GRU(48, 96, batch_first=True)

    def forward(self, text):
        return self.rnn(self.letter(text))[0]


def train(parts, rate, steps, loss_of):
    optimizer = torch.optim.AdamW([w for part in parts for w in part.parameters()], lr=rate)
    for step in range(steps):
        loss = loss_of(*texts(48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"{len(parts)} parts, step {step}, loss {loss.item():.4f}")


test_text, test_back = texts(800, world)
torch.manual_seed(args.seed)
body, letter_head, head = Body(), nn.Linear(96, LETTERS), nn.Linear(96, 1)


def next_letter(text, _):
    return F.cross_entropy(letter_head(body(text))[:, :-1].flatten(0, 1), text[:, 1:].flatten())


def reversed_text(text, back):
    return F.binary_cross_entropy_with_logits(head(body(text)[:, -1])[:, 0], back)


train([body, letter_head], 3e-3, 250, next_letter)
body.requires_grad_(False)
train([head], 1e-2, 100, reversed_text)
body.requires_grad_(True)
train([body, head], 1e-3, 300, reversed_text)
with torch.no_grad():
    print("final:", reversed_text(test_text, test_back).item())
