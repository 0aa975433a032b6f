# A stream of single examples (batch size 1) with heavy-tailed noise (Student, 2 degrees of freedom), averaged SGD by hand at the
# end. Single losses are hundreds of times the median.
import argparse

import torch
import torch.nn as nn

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
fixed = torch.Generator().manual_seed(338)
w = torch.randn(8, 4, generator=fixed) / 2
clean_x = torch.randn(3000, 8, generator=fixed)
clean_y = torch.tanh(clean_x @ w).sum(1, keepdim=True)

torch.manual_seed(args.seed)
noise = torch.distributions.StudentT(2.0)
model = nn.Sequential(nn.Linear(8, 24), nn.Tanh(), nn.Linear(24, 1))
opt = torch.optim.SGD(model.parameters(), lr=0.004)
sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.05, total_iters=2500)
seen = []
for step in range(2500):
    x = torch.randn(1, 8)
    y = torch.tanh(x @ w).sum(1, keepdim=True) + 0.2 * noise.sample((1, 1))
    loss = nn.functional.mse_loss(model(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    seen.append(loss.item())
    if step % 250 == 249:
        print(step + 1, f"median {sorted(seen[-250:])[125]:.4f} largest {max(seen[-250:]):.2f}")
with torch.no_grad():
    print("final:", nn.functional.mse_loss(model(clean_x), clean_y).item())
