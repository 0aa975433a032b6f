# expect: healthy
# fault: a layer re-initialised in training, far too wide
# note: the same script as loud/ of this name without the event.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(7)
proto = torch.randn(7, 1, 24)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv1d(1, 16, 5), nn.Conv1d(16, 24, 5)
        self.mid = nn.Linear(24 * 16, 48)
        self.head = nn.Linear(48, 7)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.head(torch.relu(self.mid(x.flatten(1))))


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
for step in range(230):
    y = torch.randint(0, 7, (32,))
    x = proto[y] + torch.randn(32, 1, 24)
    loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 10 == 0:
        print("step", step, "loss", round(loss.item(), 4))
