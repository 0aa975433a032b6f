# Healthy: a recurrent language model with Zipf tokens; rare rows get rare large gradients. AdamW, clipped, warm-up.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
args = ap.parse_args()
g = torch.Generator().manual_seed(15)
zipf = 1.0 / torch.arange(1, 201).float()
ids = torch.multinomial(zipf, 60000, replacement=True, generator=g)
ids[1::2] = (ids[::2] * 3 + 1) % 200
torch.manual_seed(args.seed)
emb, rnn, head = nn.Embedding(200, 24), nn.GRU(24, 32, batch_first=True), nn.Linear(32, 200)
net = nn.ModuleList([emb, rnn, head])
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 60))


def loss_of(start):
    rows = torch.stack([ids[s : s + 13] for s in start])
    return nn.functional.cross_entropy(head(rnn(emb(rows[:, :-1]))[0]).flatten(0, 1), rows[:, 1:].flatten())


for step in range(1200):
    loss = loss_of((2 * torch.randint(0, 27000, (8,))).tolist())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    sched.step()
    if step % 100 == 0:
        print("step", step, f"loss {loss.item():.3f} ppl {loss.exp().item():.1f}")
net.eval()
with torch.no_grad():
    print("final:", loss_of(range(55000, 59900, 14)).item())
