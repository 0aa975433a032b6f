# expect: sick
# symptom: the training loss falls nicely, but the averaged network used for validation and sampling barely improves, samples stay bad
# axis: precision
# cause: The EMA copy of the weights is stored in bfloat16, so the small (1 - decay) increments are rounded away and the averaged weights stay close to the initialisation.
# says: (ema|averag|shadow).*(bf-?16|bfloat|half|precision|round|underflow|lost|swallow|dtype|mantissa)|(bf-?16|bfloat|precision|round|mantissa).*(ema|averag|shadow)
# onset_step: 1
# fix: keep the EMA weights in float32
# mended: yes
"""A small DDPM on 8x8 pictures of bars and squares; validation and sampling use
the exponential moving average of the weights."""

import copy
import math
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(0)
mended = bool(int(os.environ.get("MENDED", "0")))

SIZE, T, BATCH, STEPS, DECAY = 8, 100, 32, 800, 0.996
betas = torch.linspace(1e-3, 0.08, T)
abar = torch.cumprod(1 - betas, 0)


def draw(n):
    img = -torch.ones(n, 1, SIZE, SIZE)
    for i in range(n):
        kind = int(torch.randint(3, (1,)))
        a, b = (int(v) for v in torch.randint(0, SIZE - 3, (2,)))
        if kind == 0:
            img[i, 0, a : a + 2, :] = 1
        elif kind == 1:
            img[i, 0, :, b : b + 2] = 1
        else:
            img[i, 0, a : a + 4, b : b + 4] = 1
    return img


class TimeEmbed(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.register_buffer("freq", torch.exp(-math.log(1000.0) * torch.arange(dim // 2) / (dim // 2)))
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.SiLU(), nn.Linear(2 * dim, dim))

    def forward(self, t):
        a = t.float()[:, None] * self.freq
        return self.mlp(torch.cat([a.sin(), a.cos()], 1))


class Block(nn.Module):
    def __init__(self, cin, cout, dim):
        super().__init__()
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.n1, self.n2 = nn.GroupNorm(4, cout), nn.GroupNorm(4, cout)
        self.emb = nn.Linear(dim, cout)
        self.skip = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x, e):
        h = nn.functional.silu(self.n1(self.conv1(x))) + self.emb(e)[:, :, None, None]
        return self.skip(x) + nn.functional.silu(self.n2(self.conv2(h)))


class UNet(nn.Module):
    def __init__(self, ch=12, dim=32):
        super().__init__()
        self.time = TimeEmbed(dim)
        self.inp = nn.Conv2d(1, ch, 3, padding=1)
        self.d1, self.d2 = Block(ch, ch, dim), Block(ch, 2 * ch, dim)
        self.mid = Block(2 * ch, 2 * ch, dim)
        self.u1 = Block(3 * ch, ch, dim)
        self.out = nn.Conv2d(ch, 1, 3, padding=1)

    def forward(self, x, t):
        e = self.time(t)
        a = self.d1(self.inp(x), e)
        b = self.mid(self.d2(nn.functional.avg_pool2d(a, 2), e), e)
        b = nn.functional.interpolate(b, scale_factor=2)
        return self.out(self.u1(torch.cat([a, b], 1), e))


def denoise_loss(net, x0, t=None, eps=None):
    t = torch.randint(0, T, (len(x0),)) if t is None else t
    eps = torch.randn_like(x0) if eps is None else eps
    s = abar[t].view(-1, 1, 1, 1)
    return nn.functional.mse_loss(net(s.sqrt() * x0 + (1 - s).sqrt() * eps, t), eps)


class Averager:
    """Exponential moving average of a module's weights."""

    def __init__(self, net, decay):
        self.decay = decay
        dtype = torch.float32 if mended else torch.bfloat16
        self.shadow = {k: v.detach().clone().to(dtype) for k, v in net.named_parameters()}

    @torch.no_grad()
    def update(self, net):
        for k, p in net.named_parameters():
            s = self.shadow[k]
            s.lerp_(p.to(s.dtype), 1 - self.decay)

    def copy_to(self, net):
        with torch.no_grad():
            for k, p in net.named_parameters():
                p.copy_(self.shadow[k])
        return net.eval()


@torch.no_grad()
def sample(net, n):
    x = torch.randn(n, 1, SIZE, SIZE)
    for i in reversed(range(T)):
        eps = net(x, torch.full((n,), i))
        x = (x - betas[i] / (1 - abar[i]).sqrt() * eps) / (1 - betas[i]).sqrt()
        if i:
            x = x + betas[i].sqrt() * torch.randn_like(x)
    return x


train, val = draw(2000), draw(128)
val_t, val_eps = torch.randint(0, T, (128,)), torch.randn(128, 1, SIZE, SIZE)
net = UNet()
eval_net = copy.deepcopy(net)
avg = Averager(net, DECAY)
opt = torch.optim.Adam(net.parameters(), lr=1.5e-3)
running = 1.0
for step in range(1, STEPS + 1):
    loss = denoise_loss(net, train[torch.randint(0, len(train), (BATCH,))])
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
    opt.step()
    avg.update(net)
    running = 0.95 * running + 0.05 * loss.item()
    if step % 80 == 0:
        with torch.no_grad():
            v = denoise_loss(avg.copy_to(eval_net), val, val_t, val_eps).item()
        print(f"iter {step}: train {running:.4f}  val(avg weights) {v:.4f}")
x = sample(avg.copy_to(eval_net), 32)
d = torch.cdist(x.clamp(-1, 1).flatten(1), train.flatten(1)).min(1).values.mean().item()
print(f"mean distance of samples to the nearest training picture: {d:.3f}")
