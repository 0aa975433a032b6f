# Post-norm transformer that copies, Adam. Fault: the warm-up of the schedule is 1 step instead of 150.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
g = torch.Generator().manual_seed(61)


def pairs(n):
    x = torch.randint(0, 10, (n, 12), generator=g)
    y = (x + x.roll(1, 1)) % 10
    y = torch.where(torch.rand(n, 12, generator=g) < 0.1, torch.randint(0, 10, (n, 12), generator=g), y)
    return x, y


tx, ty = pairs(6000)
hx, hy = pairs(600)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(10, 32), nn.Parameter(0.5 * torch.randn(12, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=False)
        self.enc = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.out = nn.Linear(32, 10)

    def forward(self, x):
        return self.out(self.enc(self.tok(x) + self.pos))


def ce(net, x, y):
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())


torch.manual_seed(args.seed)
net = Net()
warm = 150 if args.twin else 1
opt = torch.optim.Adam(net.parameters(), lr=1.5e-2, betas=(0.9, 0.98))
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min((s + 1) / warm, 1.0) * max(0.02, 1 - s / 700))
for step in range(700):
    i = torch.randint(0, 6000, (32,))
    loss = ce(net, tx[i], ty[i])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print(f"step {step:4d} | loss {loss.item():.4f} | lr {opt.param_groups[0]['lr']:.5f}")
net.eval()
with torch.no_grad():
    print("final:", ce(net, hx, hy).item())
