# expect: healthy
# symptom: the loss stays at ln 2 (chance) for a third of the run as if nothing were learned, then falls to almost zero
# axis: none
# mended: none
import math
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(2)

N_BITS, SECRET = 40, (3, 11, 20, 26)
STEPS, BATCH, HIDDEN = 900, 512, 384


def sample(n, g):
    """Random bit strings; the label is the parity of a few fixed, unknown positions."""
    x = torch.randint(0, 2, (n, N_BITS), generator=g).float() * 2 - 1
    y = (x[:, list(SECRET)].prod(1) > 0).float()
    return x, y


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1, self.l2 = nn.Linear(N_BITS, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, x):
        return self.l2(F.relu(self.l1(x))).squeeze(-1)


@torch.no_grad()
def accuracy(model, x, y):
    return ((model(x) > 0).float() == y).float().mean().item()


def main():
    g = torch.Generator().manual_seed(1)
    xv, yv = sample(2000, torch.Generator().manual_seed(77))
    model = MLP()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    t0 = time.time()
    print(f"chance level of the loss: {math.log(2):.4f}")
    for step in range(STEPS):
        x, y = sample(BATCH, g)
        loss = F.binary_cross_entropy_with_logits(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0 or step == STEPS - 1:
            print(f"step {step:4d}  loss {loss.item():.4f}  val acc {accuracy(model, xv, yv):.3f}")
    print(f"{time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
