# expect: sick
# fault: rate far too high from the first step
# onset_step: 0
# says: (?i)(loss|gradient|rate|progress|spike|diverg|lr|dead|flat)
# note: lr=1.5 for SGD with momentum 0.9: "the linear scaling rule" applied to the number of classes.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(2)
proto = torch.randn(8, 3, 10, 10)
net = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(128, 8))
opt = torch.optim.SGD(net.parameters(), lr=1.5, momentum=0.9)
for step in range(120):
    y = torch.randint(0, 8, (32,))
    x = 0.7 * proto[y] + torch.randn(32, 3, 10, 10)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 0:
        print(step, loss.item())
