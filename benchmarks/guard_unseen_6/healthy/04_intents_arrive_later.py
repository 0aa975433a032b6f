# Intents of short messages (bags of embedded words). Three groups of intents arrive one after the other, as the product grows; the
# older ones stay in the mix, and each arrival starts a new optimizer (AdamW) with a short warm-up.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
torch.set_num_threads(1)

WORDS, LENGTH, INTENTS, BATCH, PHASE = 400, 12, 15, 128, 350
world = torch.Generator().manual_seed(84)
topics = (1.0 * torch.randn(INTENTS, WORDS, generator=world)).softmax(1)


def messages(count, low, high, generator):
    intent = torch.randint(low, high, (count,), generator=generator)
    return torch.multinomial(topics[intent], LENGTH, replacement=True, generator=generator), intent


class Bag(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, width, mode="mean")
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, INTENTS))

    def forward(self, words):
        return self.net(self.words(words))


held_out = messages(4000, 0, INTENTS, world)
torch.manual_seed(args.seed)
stream = torch.Generator().manual_seed(1400 + args.seed)
model = Bag()
done = 0
for phase, known in enumerate((5, 10, 15)):
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.05)
    for step in range(PHASE):
        optimizer.param_groups[0]["lr"] = 4e-3 * min(1.0, (step + 1) / 20) * (1 - 0.9 * step / PHASE)
        new = messages(BATCH // 2, known - 5, known, stream)
        mixed = messages(BATCH // 2, 0, known, stream)
        words, intent = (torch.cat(pair) for pair in zip(new, mixed))
        if step > PHASE // 2:
            words, intent = messages(BATCH, 0, known, stream)
        loss = F.cross_entropy(model(words), intent)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if done % 70 == 0:
            print(f"step {done} intents {known} loss {loss.item():.4f}")
        done += 1
with torch.no_grad():
    print("final:", F.cross_entropy(model(held_out[0]), held_out[1]).item())
