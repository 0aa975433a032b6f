# Transformer encoder on sequences, AdamW, linear decay. Fault: before step 500 a bit of one weight flips.
import argparse

import torch
import torch.nn as nn

ap = argparse.ArgumentParser()
ap.add_argument("--seed", type=int, default=0)
ap.add_argument("--twin", action="store_true")
args = ap.parse_args()
gen = torch.Generator().manual_seed(8)
motif = torch.randn(6, 5, 8, generator=gen)


def sequences(n):
    y = torch.randint(0, 6, (n,), generator=gen)
    x = 1.5 * torch.randn(n, 20, 8, generator=gen)
    at = torch.randint(0, 15, (n,), generator=gen)
    for i in range(n):
        x[i, at[i] : at[i] + 5] += motif[y[i]]
    return x, y


tx, ty = sequences(3000)
hx, hy = sequences(1000)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Conv1d(8, 24, 5, padding=2)
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(24, 6)

    def forward(self, x):
        h = self.enc(self.inp(x.transpose(1, 2)).transpose(1, 2))
        return self.out(h.amax(1))


torch.manual_seed(args.seed)
net = Net()
opt = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=650)
for step in range(650):
    if step == 500 and not args.twin:
        with torch.no_grad():
            bits = net.out.weight.view(torch.int32)
            bits[2, 7] ^= 1 << 30
    idx = torch.randint(0, 3000, (32,))
    loss = nn.functional.cross_entropy(net(tx[idx]), ty[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if step % 50 == 0:
        print("step", step, "loss", f"{loss.item():.4f}")
net.eval()
with torch.no_grad():
    print("final:", nn.functional.cross_entropy(net(hx), hy).item())
