# expect: healthy
# symptom: the weight average covers the parameters only and the net has batch norms
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(5)
BATCH, STEPS, SIZE = 32, 200, 20


def blobs(n):
    """Image of one bright blob and clutter; the target is its centre in [-1, 1]."""
    c = torch.rand(n, 2) * 1.6 - 0.8
    g = torch.linspace(-1, 1, SIZE)
    d = (g[None, :, None] - c[:, 1, None, None]) ** 2 + (g[None, None, :] - c[:, 0, None, None]) ** 2
    img = torch.exp(-d / 0.02).unsqueeze(1) * 200 + 30 * torch.rand(n, 1, SIZE, SIZE)
    return img, c


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 12, 5, 2, 2), nn.BatchNorm2d(12)
        self.c2, self.b2 = nn.Conv2d(12, 24, 3, 2, 1), nn.BatchNorm2d(24)
        self.fc = nn.Linear(24 * 25, 2)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        return self.fc(x.flatten(1))


def ema_update(avg, net, decay):
    with torch.no_grad():
        for a, p in zip(avg.parameters(), net.parameters()):
            a.lerp_(p, 1 - decay)


@torch.no_grad()
def recalibrate(model, batches):
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    for m in norms:
        m.reset_running_stats()
        m.momentum = None
    model.train()
    for x in batches:
        model(x)
    return model.eval()


x_all, c_all = blobs(1600)
x_val, c_val = blobs(300)
net, avg = Net(), Net()
avg.load_state_dict(net.state_dict())
avg.requires_grad_(False)
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(1, STEPS + 1):
    net.train()
    idx = torch.randint(0, len(x_all), (BATCH,))
    loss = F.mse_loss(net(x_all[idx]), c_all[idx])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    ema_update(avg, net, 0.95)
    if step % 50 == 0:
        recalibrate(avg, x_all[:320].split(BATCH))
        net.eval()
        with torch.no_grad():
            print(
                f"{step}: train {loss.item():.4f} val {F.mse_loss(net(x_val), c_val):.4f} averaged {F.mse_loss(avg(x_val), c_val):.4f}"
            )
