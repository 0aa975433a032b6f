# Topics from bags of words, Adam. Words are rare (Zipf), so most rows of the embedding get a gradient once in a while.
# Three topics at first, all twelve from step 300 on. The second moment is averaged over 100,000 steps, so that the larger
# gradients of then meet the small moments of quiet times.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(308)
WORDS, TOPICS = 2000, 12
zipf = 1 / torch.arange(1.0, WORDS + 1)
lean = torch.randn(TOPICS, WORDS, generator=fixed).exp() * zipf


def documents(n, topics, g=None):
    y = torch.randint(0, topics, (n,), generator=g)
    return torch.multinomial(lean[y], 20, replacement=True, generator=g), y


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.EmbeddingBag(WORDS, 32, mode="mean")
        self.net = nn.Sequential(nn.Linear(32, 48), nn.ReLU(), nn.Linear(48, TOPICS))

    def forward(self, w):
        return self.net(self.emb(w))


test_w, test_y = documents(3000, TOPICS, fixed)
torch.manual_seed(args.seed)
model = Bag()
nn.init.normal_(model.emb.weight, std=0.01)
opt = torch.optim.Adam(model.parameters(), lr=8e-2, betas=(0.9, 0.9 if args.twin else 0.99999))
for step in range(700):
    w, y = documents(64, 3 if step < 300 else TOPICS)
    loss = nn.functional.cross_entropy(model(w), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(step, f"{loss.item():.4f}")
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test_w), test_y).item())
