# expect: sick
# symptom: the loss falls to 0.4 within 100 steps, leaps at step 120, is 1e21 one step later and NaN from step 123 on
# axis: data
# cause: one row of the table carries the missing-value sentinel -9999 in two columns, and its batch (step 120) wrecks the weights
# says: (?i)bad-batch|nonfinite-input|sentinel|-?9999|(corrupt|bad|broken|damaged|outl|extreme|abnormal|faulty)\w*.{0,60}(batch|rows?|sample|record|data|input|value)|(batch|rows?|sample|record|inputs?|data).{0,60}(corrupt|\bbad\b|broken|damaged|outl|extreme|abnormal|at fault)
# onset_step: 120
# fix: drop the rows with the sentinel before training
# mended: drops every row with a value below -9000
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(201)
g = torch.Generator().manual_seed(11)
N, B = 32 * 320, 32
X = torch.randn(N, 9, generator=g)
Y = 1.5 * X[:, 0] - X[:, 1] * X[:, 2] + 0.8 * torch.sin(2 * X[:, 3]) + 0.3 * torch.randn(N, generator=g)
X[119 * B + 7, 4:6] = -9999.0
order = torch.arange(N)
if os.environ.get("MENDED") == "1":
    order = order[(X > -9000).all(1)]

net = nn.Sequential(nn.Linear(9, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
opt = torch.optim.SGD(net.parameters(), lr=0.02, momentum=0.9)
val_x = torch.randn(1024, 9, generator=g)
val_y = 1.5 * val_x[:, 0] - val_x[:, 1] * val_x[:, 2] + 0.8 * torch.sin(2 * val_x[:, 3])
for step, idx in enumerate(order.split(B), 1):
    loss = nn.functional.mse_loss(net(X[idx]).squeeze(1), Y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0 or 117 < step < 124:
        print(f"step {step} loss {loss.item():.4f}")
with torch.no_grad():
    print(
        f"held-out mse {nn.functional.mse_loss(net(val_x).squeeze(1), val_y).item():.4f}, variance {val_y.var().item():.3f}"
    )
