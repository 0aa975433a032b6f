# EXPECT: sick
# FAULT: sqrt at zero, NaN only in the gradient, clip_grad_norm_ raises
# ONSET: 10
# SAYS: nan|NaN|non-finite|gradient|sqrt
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(304)


class MetricNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = nn.Sequential(nn.Linear(12, 48), nn.ReLU(), nn.Linear(48, 8))

    def distance(self, a, b):
        return ((self.f(a) - self.f(b)) ** 2).sum(1).sqrt()


net = MetricNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
mu = torch.randn(5, 12)
for step in range(40):
    ya, yb = torch.randint(0, 5, (24,)), torch.randint(0, 5, (24,))
    a, b = mu[ya] + 0.3 * torch.randn(24, 12), mu[yb] + 0.3 * torch.randn(24, 12)
    if step == 9:
        b[3], yb[3] = a[3], ya[3]  # the same picture twice
    d = net.distance(a, b)
    same = (ya == yb).float()
    loss = (same * d**2 + (1 - same) * torch.relu(2 - d) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)
    opt.step()
    if step % 3 == 0:
        print(step, loss.item())
