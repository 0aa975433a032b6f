# expect: healthy
# symptom: the first updates are skipped because of infinite gradients, as if the run broke at once (the gradient scaler searches its scale)
# axis: precision
# cause: none
import torch
from torch import nn

torch.manual_seed(34)


def patches(n):
    y = torch.randint(5, (n,))
    x = torch.randn(n, 32)
    x[torch.arange(n), y * 6] += 3.0
    x[torch.arange(n), y * 6 + 1] -= 2.0
    return x, y


net = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 5))
opt = torch.optim.AdamW(net.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**24, growth_interval=2000)
for step in range(400):
    x, y = patches(64)
    with torch.autocast("cpu", dtype=torch.float16):
        loss = nn.functional.cross_entropy(net(x), y)
    opt.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    if step < 10 or step % 40 == 0 or step == 399:
        print(f"step {step} loss {loss.item():.4f} norm {norm.item():.3f} scale {scaler.get_scale():.0f}")
