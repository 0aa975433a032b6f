# A sequence to sequence model (GRU, attention) that learns to reverse and re-code a word. Somebody's probe of the learning rate is still
# in the loop: it sets the rate to 0.3 at step 360 and puts it back 25 steps later.
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
p.add_argument("--twin", action="store_true")
a = p.parse_args()

LETTERS, LEN, START = 20, 9, 20
g0 = torch.Generator().manual_seed(77)
code = torch.randperm(LETTERS, generator=g0)


def pairs(n, g=None):
    src = torch.randint(0, LETTERS, (n, LEN), generator=g)
    return src, code[src.flip(1)]


class Translator(nn.Module):
    def __init__(self, d=72):
        super().__init__()
        self.src = nn.Embedding(LETTERS, d)
        self.tgt = nn.Embedding(LETTERS + 1, d)
        self.enc = nn.GRU(d, d, batch_first=True, bidirectional=True)
        self.dec = nn.GRU(d, d, batch_first=True)
        self.key = nn.Linear(2 * d, d)
        self.value = nn.Linear(2 * d, d)
        self.bridge = nn.Linear(2 * d, d)
        self.out = nn.Linear(2 * d, LETTERS)

    def forward(self, src, tgt):
        memory, h = self.enc(self.src(src))
        h0 = torch.tanh(self.bridge(torch.cat([h[0], h[1]], 1)))[None]
        shifted = torch.cat([torch.full_like(tgt[:, :1], START), tgt[:, :-1]], 1)
        state, _ = self.dec(self.tgt(shifted), h0)
        att = (state @ self.key(memory).transpose(1, 2) / 8).softmax(-1)
        return self.out(torch.cat([state, att @ self.value(memory)], -1))


test_src, test_tgt = pairs(800, g0)
torch.manual_seed(a.seed)
model = Translator()
adam = torch.optim.Adam(model.parameters(), lr=2e-3)
for step in range(440):
    if not a.twin:
        if step == 360:
            for group in adam.param_groups:
                group["lr"] = 0.3
        if step == 385:
            for group in adam.param_groups:
                group["lr"] = 2e-3
    src, tgt = pairs(64)
    loss = F.cross_entropy(model(src, tgt).transpose(1, 2), tgt)
    adam.zero_grad()
    loss.backward()
    adam.step()
    if step % 50 == 0:
        print("step", step, "loss", round(loss.item(), 4))

model.eval()
with torch.no_grad():
    print("final:", F.cross_entropy(model(test_src, test_tgt).transpose(1, 2), test_tgt).item())
