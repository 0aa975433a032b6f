# expect: healthy
# symptom: the loss sits at 0.693 (chance) for about 370 steps as if nothing were learned, then drops to nearly zero
# axis: none
# mended: none
"""Sparse parity: the label is the XOR of three of the bits. Fresh data each step."""

import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)

BITS, KEY, STEPS, BATCH = 30, (3, 11, 24), 900, 192


class Net(nn.Module):
    def __init__(self, width=768):
        super().__init__()
        self.l1 = nn.Linear(BITS, width)
        self.l2 = nn.Linear(width, 1)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x))).squeeze(1)


def batch(n, gen):
    x = torch.randint(0, 2, (n, BITS), generator=gen).float() * 2 - 1
    y = (x[:, list(KEY)].prod(1) > 0).float()
    return x, y


def evaluate(model, gen):
    model.eval()
    with torch.no_grad():
        x, y = batch(4000, gen)
        acc = ((model(x) > 0).float() == y).float().mean().item()
    model.train()
    return acc


def main():
    gen = torch.Generator().manual_seed(1)
    test_gen = torch.Generator().manual_seed(1000)
    model = Net()
    opt = torch.optim.AdamW(model.parameters(), lr=8e-4, weight_decay=0.1)
    t0 = time.time()
    for step in range(STEPS):
        x, y = batch(BATCH, gen)
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d} loss {loss.item():.4f} test acc {evaluate(model, test_gen):.3f}", flush=True)
    print(f"done {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
