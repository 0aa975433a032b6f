# Sequence classifier (GRU) with an activity penalty, Adafactor. Fault: from step 430 to 489 the weight of the penalty is 200
# where it is 0.01.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
fixed = torch.Generator().manual_seed(29)


def draw(n, g=None):
    x = torch.randn(n, 12, 3, generator=g)
    label = (x[..., 0].cumsum(1).amax(1) > 2.5).long() + (x[..., 1].sum(1) > 0).long() * 2
    wrong = torch.rand(n, generator=g) < 0.1
    return x, torch.where(wrong, torch.randint(0, 4, (n,), generator=g), label)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru, self.head = nn.GRU(3, 32, batch_first=True), nn.Linear(32, 4)

    def forward(self, x):
        h = self.gru(x)[0]
        return self.head(h[:, -1]), h.pow(2).mean()


test = draw(3000, fixed)
torch.manual_seed(args.seed)
model = Net()
opt = torch.optim.Adafactor(model.parameters(), lr=1e-2)
for step in range(500):
    x, label = draw(64)
    logits, activity = model(x)
    weight = 200.0 if 430 <= step < 490 and not args.twin else 0.01
    loss = nn.functional.cross_entropy(logits, label) + weight * activity
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 50 == 0:
        print(f"{step} {loss.item():.4f}")
model.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(model(test[0])[0], test[1]).item())
