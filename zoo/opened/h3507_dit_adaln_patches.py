# expect: healthy
# symptom: resembles a run that does not learn, as the denoising loss is rough and flat late on
# axis: loss
import copy, math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(44)
T = 100
betas = torch.linspace(1e-3, 0.06, T)
abar = torch.cumprod(1 - betas, 0)


def pictures(n):
    """8x8 pictures in [-1, 1]: class 0..3 is the quadrant of a bright bump."""
    y = torch.randint(0, 4, (n,))
    yy, xx = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
    cy = 1.5 + 4 * (y // 2) + 0.4 * torch.randn(n)
    cx = 1.5 + 4 * (y % 2) + 0.4 * torch.randn(n)
    r2 = (yy - cy[:, None, None]) ** 2 + (xx - cx[:, None, None]) ** 2
    return (2 * torch.exp(-r2 / 3) - 1)[:, None], y


def time_embed(t, d):
    f = torch.exp(-math.log(1000) * torch.arange(d // 2) / (d // 2))
    a = t[:, None].float() * f
    return torch.cat([a.cos(), a.sin()], -1)


class DiTBlock(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1 = nn.LayerNorm(d, elementwise_affine=False)
        self.n2 = nn.LayerNorm(d, elementwise_affine=False)
        self.attn = nn.MultiheadAttention(d, h, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d))
        self.mod = nn.Linear(d, 6 * d)
        nn.init.zeros_(self.mod.weight)
        nn.init.zeros_(self.mod.bias)

    def forward(self, x, c):
        s1, b1, g1, s2, b2, g2 = self.mod(F.silu(c)).unsqueeze(1).chunk(6, -1)
        h = self.n1(x) * (1 + s1) + b1
        x = x + g1 * self.attn(h, h, h, need_weights=False)[0]
        return x + g2 * self.mlp(self.n2(x) * (1 + s2) + b2)


class DiT(nn.Module):
    def __init__(self, d=64, h=4, depth=2, patch=2):
        super().__init__()
        self.d, self.p = d, patch
        self.inp, self.out = nn.Conv2d(1, d, patch, patch), nn.Linear(d, patch * patch)
        self.pos = nn.Parameter(torch.randn(1, 16, d) * 0.1)
        self.cls, self.tm = nn.Embedding(4, d), nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))
        self.blocks, self.norm = nn.ModuleList(DiTBlock(d, h) for _ in range(depth)), nn.LayerNorm(d)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x, t, y):
        c = self.tm(time_embed(t, self.d)) + self.cls(y)
        h = self.inp(x).flatten(2).transpose(1, 2) + self.pos
        for b in self.blocks:
            h = b(h, c)
        return F.fold(self.out(self.norm(h)).transpose(1, 2), (8, 8), self.p, stride=self.p)


def add_noise(x, t, eps):
    a = abar[t].view(-1, 1, 1, 1)
    return a.sqrt() * x + (1 - a).sqrt() * eps


@torch.no_grad()
def sample(net, y):
    x = torch.randn(len(y), 1, 8, 8)
    for i in reversed(range(T)):
        e = net(x, torch.full((len(y),), i), y)
        x = (x - betas[i] / (1 - abar[i]).sqrt() * e) / (1 - betas[i]).sqrt()
        if i > 0:
            x = x + betas[i].sqrt() * torch.randn_like(x)
    return x


model = DiT()
ema = copy.deepcopy(model).requires_grad_(False)
opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.0)
for step in range(450):
    x, y = pictures(32)
    t, eps = torch.randint(0, T, (32,)), torch.randn_like(x)
    loss = F.mse_loss(model(add_noise(x, t, eps), t, y), eps)
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    decay = min(0.98, (step + 1) / (step + 10))
    for pe, p in zip(ema.parameters(), model.parameters()):
        pe.lerp_(p.detach(), 1 - decay)
    if step % 30 == 0 or step == 449:
        print(f"step {step} loss {loss.item():.4f}", flush=True)
y = torch.arange(4).repeat(16)
img = sample(ema, y)
quad = torch.stack([img[:, 0, :4, :4], img[:, 0, :4, 4:], img[:, 0, 4:, :4], img[:, 0, 4:, 4:]], 1).mean((2, 3))
print(
    f"bump in the asked quadrant {(quad.argmax(1) == y).float().mean().item():.3f}"
    f" sample mean {img.mean():.3f} data mean {pictures(500)[0].mean():.3f}"
)
