# expect: sick
# fault: momentum set to 0.999 without damping
# onset_step: 60
# says: (?i)(loss|gradient|momentum|rate|progress|spike|diverg|beta)
# note: a momentum schedule ends at 0.999 instead of 0.99 from step 60 on; the effective rate grows a hundredfold.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(5)
X = torch.randn(1000, 12)
y = torch.sin(X[:, 0] * 2) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3]
net = nn.Sequential(nn.Linear(12, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1), nn.Flatten(0))
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.8)
for step in range(220):
    opt.param_groups[0]["momentum"] = 0.8 if step < 60 else 0.999
    idx = torch.randint(0, 1000, (64,))
    loss = nn.functional.mse_loss(net(X[idx]), y[idx])
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print(step, round(loss.item(), 4))
