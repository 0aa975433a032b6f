# expect: sick
# fault: gradients clipped before they are unscaled
# onset_step: 0
# says: (?i)(unscale|clip)
# note: clip_grad_norm_ stands before scaler.unscale_, so the scaled gradients are cut to norm 1 and then divided by 65536: the SGD updates are nearly nothing.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(40)


def depthwise(i, o, s):
    return nn.Sequential(nn.Conv2d(i, i, 3, s, 1, groups=i), nn.Conv2d(i, o, 1), nn.GroupNorm(4, o), nn.SiLU())


model = nn.Sequential(
    nn.Conv2d(1, 8, 3, 1, 1), depthwise(8, 16, 2), depthwise(16, 32, 2), nn.Flatten(), nn.Linear(32 * 9, 7)
)
proto = torch.randn(7, 1, 12, 12)
opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
scaler = torch.amp.GradScaler("cpu")


def batch(n=40):
    y = torch.randint(0, 7, (n,))
    return proto[y] + 1.5 * torch.randn(n, 1, 12, 12), y


for step in range(150):
    x, y = batch()
    opt.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
    scaler.unscale_(opt)
    scaler.step(opt)
    scaler.update()
    if step % 15 == 0:
        print(step, f"{loss.item():.4f}")
x, y = batch(400)
print("final acc", (model(x).argmax(1) == y).float().mean().item())
