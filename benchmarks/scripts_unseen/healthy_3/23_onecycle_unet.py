# expect: healthy
# fault: rate that starts low and ends at nearly 0, weights that stop moving at the end
# note: OneCycle, stepped per batch with the right total; warm-up and the dead end of the run belong to it.
import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(44)


class SmallUNet(nn.Module):
    def __init__(self, w=8):
        super().__init__()
        self.a = nn.Conv2d(1, w, 3, padding=1)
        self.b = nn.Conv2d(w, 2 * w, 3, padding=1)
        self.c = nn.Conv2d(3 * w, w, 3, padding=1)
        self.o = nn.Conv2d(w, 1, 1)

    def forward(self, x):
        a = F.silu(self.a(x))
        b = F.silu(self.b(F.avg_pool2d(a, 2)))
        return self.o(F.silu(self.c(torch.cat([a, F.interpolate(b, scale_factor=2)], 1))))


def scratched(n):
    y = torch.linspace(0, 3, 20)
    clean = torch.sin(torch.rand(n, 1, 1, 1) * 2 * y[:, None] + torch.rand(n, 1, 1, 1) * 6) * torch.cos(
        torch.rand(n, 1, 1, 1) * y
    )
    return clean + 0.5 * torch.randn_like(clean), clean


STEPS = 160
net = SmallUNet()
opt = torch.optim.AdamW(net.parameters(), lr=1e-2)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, max_lr=1e-2, total_steps=STEPS)
for s in range(STEPS):
    noisy, clean = scratched(12)
    loss = F.mse_loss(net(noisy), clean)
    opt.zero_grad()
    loss.backward()
    opt.step()
    sched.step()
    if s % 16 == 0:
        print(s, f"{loss.item():.4f} lr {sched.get_last_lr()[0]:.2e}")
