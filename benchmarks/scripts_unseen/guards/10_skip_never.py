# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(310)
net = nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 1))
opt = torch.optim.RMSprop(net.parameters(), lr=2e-3)
skipped = 0
for it in range(1, 81):
    x = torch.rand(32, 6)
    ratio = x[:, :1] / (x[:, 1:2] + 0.5)
    loss = nn.functional.mse_loss(net(x), ratio)
    if not torch.isfinite(loss).item():
        skipped += 1
        continue
    opt.zero_grad()
    loss.backward()
    opt.step()
    if it % 10 == 0:
        print(it, round(loss.item(), 5))
print("done, skipped", skipped)
