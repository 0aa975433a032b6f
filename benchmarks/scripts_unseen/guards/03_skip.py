# EXPECT: sick
# FAULT: an infinite target makes the loss infinite, the script skips the batch
# ONSET: 18
# SAYS: nan|NaN|non-finite|inf|skip
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(303)
net = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 1))
opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)
skipped = 0
for it in range(1, 81):
    x = torch.rand(32, 6)
    ratio = x[:, :1] / (x[:, 1:2] + 0.5)
    if it == 18:
        ratio[4] = 1.0 / torch.zeros(1)
    loss = nn.functional.mse_loss(net(x), ratio)
    if not torch.isfinite(loss).item():
        skipped += 1
        print("skip batch", it)
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0:
        print(it, round(loss.item(), 5))
print("done, skipped", skipped)
