# expect: healthy
# fault: none
# note: loss with reduction='sum' and a learning rate chosen for the sum; large loss values and gradients are as intended.
import torch
import torch.nn.functional as F

torch.manual_seed(5)
net = torch.nn.Sequential(torch.nn.Linear(10, 32), torch.nn.ReLU(), torch.nn.Linear(32, 3))
opt = torch.optim.SGD(net.parameters(), lr=0.1 / 128, momentum=0.9)
A = torch.randn(10, 3)
for i in range(200):
    x = torch.randn(128, 10)
    y = (x @ A).argmax(1)
    loss = F.cross_entropy(net(x), y, reduction="sum")
    opt.zero_grad()
    loss.backward()
    opt.step()
    if i % 20 == 0:
        print(i, loss.item())
