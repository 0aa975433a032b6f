# EXPECT: sick
# FAULT: log of zero gives inf and then NaN, the script raises
# ONSET: 21
# SAYS: nan|NaN|non-finite|inf|log
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(302)


class NonFiniteLoss(RuntimeError):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(10, 40)
        self.b = nn.Linear(40, 3)

    def forward(self, x, mask):
        p = torch.softmax(self.b(torch.relu(self.a(x))), 1)
        p = p * mask
        return p / p.sum(1, keepdim=True)


net = Net()
opt = torch.optim.SGD(net.parameters(), lr=0.1)
mu = torch.randn(3, 10)
for step in range(60):
    y = torch.randint(0, 3, (32,))
    mask = torch.ones(32, 3)
    if step == 20:
        mask[7] = 0.0  # no class allowed
    p = net(mu[y] + 0.5 * torch.randn(32, 10), mask)
    loss = -torch.log(p[torch.arange(32), y]).mean()
    if not torch.isfinite(loss):
        raise NonFiniteLoss(f"loss {loss.item()} at step {step}")
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 5 == 0:
        print("step", step, "loss", round(loss.item(), 4))
