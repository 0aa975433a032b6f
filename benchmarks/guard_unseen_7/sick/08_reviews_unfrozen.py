# Tone of short reviews: word vectors and attention, frozen at first, and a reader on top, SGD with momentum. At step 300 the frozen
# part joins as a parameter group of its own; its momentum reads 0.999 in the config where 0.9 was meant, and its rate 0.4 for 0.04.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--twin", action="store_true")
args = parser.parse_args()

STEPS, BATCH = 650, 64
WORDS, LENGTH, TONES, WIDTH = 200, 16, 4, 32
JOIN = 300
CONFIG = {"momentum": 0.9, "lr": 0.04} if args.twin else {"momentum": 0.999, "lr": 0.4}
world = torch.Generator().manual_seed(7808)
tone_of_word = 1.6 * torch.randn(WORDS, TONES, generator=world)
negation = torch.arange(WORDS) < 16
pretrained = torch.randn(WORDS, WIDTH, generator=world)
pretrained[:, :TONES] += tone_of_word
pretrained[:16, -1] += 4


def reviews(count, generator=None):
    words = torch.randint(WORDS, (count, LENGTH), generator=generator)
    sign = torch.where(negation[words], -1.0, 1.0).roll(1, 1)
    sign[:, 0] = 1
    score = (tone_of_word[words] * sign.unsqueeze(-1)).mean(1) * 6.0
    gumbel = -torch.log(-torch.log(torch.rand(count, TONES, generator=generator).clamp(1e-6, 1 - 1e-6)))
    return words, (score + gumbel).argmax(1)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding.from_pretrained(pretrained.clone(), freeze=True)
        self.place = nn.Parameter(0.1 * torch.randn(LENGTH, WIDTH))
        self.attend = nn.MultiheadAttention(WIDTH, 4, batch_first=True)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.net = nn.Sequential(nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))
        self.out = nn.Linear(WIDTH, TONES)
        for p in self.attend.parameters():
            p.requires_grad_(False)

    def forward(self, words):
        x = self.words(words) + self.place
        n = self.first(x)
        x = x + self.attend(n, n, n, need_weights=False)[0]
        x = x + self.net(self.second(x))
        return self.out(x.mean(1))


def loss_of(model, words, tone):
    return F.cross_entropy(model(words), tone)


held_out = reviews(6000, world)
torch.manual_seed(args.seed)
model = Reader()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.06, momentum=0.9)
for step in range(STEPS):
    if step == JOIN:
        late = [p for p in model.parameters() if not p.requires_grad]
        for p in late:
            p.requires_grad_(True)
        optimizer.add_param_group({"params": late, **CONFIG})
    words, tone = reviews(BATCH)
    loss = loss_of(model, words, tone)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", loss_of(model, *held_out).item())
