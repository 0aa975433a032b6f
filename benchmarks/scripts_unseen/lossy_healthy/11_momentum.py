# EXPECT: healthy
# FAULT: none
# ONSET: 1
# SAYS: none
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(211)

net = nn.Sequential(nn.Linear(14, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
opt = torch.optim.SGD(net.parameters(), lr=0.06, momentum=0.8)
W = torch.randn(14, 2) / 3
for step in range(260):
    if step == 60:
        opt.param_groups[0]["momentum"] = 0.85
    x = torch.randn(64, 14)
    loss = (net(x) - torch.relu(x @ W)).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        print(step, "mse", round(loss.item(), 5))
