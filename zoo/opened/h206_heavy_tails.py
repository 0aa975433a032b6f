# expect: healthy
# symptom: resembles bad rows: every thirty steps or so the loss leaps to ten times its value, the gradient before clipping too
# note: honest heavy-tailed claims (Student t); a Huber loss and clipping take them, the next step is as before and the held-out error falls
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(236)
gen = torch.Generator().manual_seed(36)


def claims(n, noise=True):
    x = torch.randn(n, 8, generator=gen)
    y = x[:, 0] * 1.2 + torch.relu(x[:, 1]) - 0.7 * x[:, 2] * x[:, 3]
    tail = torch.randn(n, generator=gen) / torch.randn(n, 2, generator=gen).square().mean(1).sqrt()
    return x, y + 0.4 * tail if noise else y


net = nn.Sequential(nn.Linear(8, 64), nn.SiLU(), nn.Linear(64, 64), nn.SiLU(), nn.Linear(64, 1))
opt = torch.optim.AdamW(net.parameters(), lr=3e-3)
vx, vy = claims(1024, noise=False)
for step in range(1, 401):
    x, y = claims(24)
    loss = nn.functional.smooth_l1_loss(net(x).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    if step % 20 == 0 or loss.item() > 1.5 and step > 50:
        with torch.no_grad():
            held = nn.functional.mse_loss(net(vx).squeeze(1), vy)
        print(f"step {step} loss {loss.item():.4f} held-out {held.item():.4f}")
