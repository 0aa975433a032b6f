# expect: sick
# symptom: the loss shows spikes of 100 to a million times its usual size in random steps, from the start on, and the noise prediction improves far less than it should
# axis: loss
# cause: the loss is taken on x0 recovered from the predicted noise by dividing by alpha(t), which goes to zero at t = 1, so the loss weight 1/alpha^2 (inverse SNR) has no bound and single high-noise samples dominate
# says: alpha|\bsnr\b|signal.?to.?noise|(divi|inverse).*(zero|small)|near.?zero.?(denominator|divisor)|weight.*(unbounded|unclip|explod|infinit|bound|clamp)|(un.?bounded|un.?clipped|un.?clamped).{0,20}weight|high.?noise|noise.?(level|schedule)|\bt ?(=|near|close to|->|→) ?1|(x_?0|reconstruct).*(divi|scale|recover|blow|explod)
# onset_step: 1
# fix: bound the divisor, alpha.clamp(min=0.3), in the recovered x0
# mended: no spikes (loss 0.2 to 0.4), held-out noise MSE 0.26 (bare: spikes up to 2e6, noise MSE 1.61, worse than predicting zero)
import math
import os

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(13)

LEN, BATCH, STEPS, D = 32, 64, 500, 128


def make_signals(n, g):
    t = torch.arange(LEN) / LEN
    f = torch.randint(1, 4, (n, 1), generator=g).float()
    ph = 2 * math.pi * torch.rand(n, 1, generator=g)
    amp = 0.8 + 0.6 * torch.rand(n, 1, generator=g)
    step = (t[None] > torch.rand(n, 1, generator=g)).float() - 0.5
    return amp * torch.sin(2 * math.pi * f * t + ph) + step


class TimeEmbedding(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("freq", torch.exp(torch.linspace(0, math.log(200.0), d // 2)))
        self.ff = nn.Sequential(nn.Linear(d, d), nn.SiLU(), nn.Linear(d, d))

    def forward(self, t):
        a = t[:, None] * self.freq
        return self.ff(torch.cat([a.sin(), a.cos()], -1))


class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.mod = nn.Linear(d, 2 * d)
        self.ff = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    def forward(self, x, emb):
        scale, shift = self.mod(emb).chunk(2, -1)
        return x + self.ff(self.norm(x) * (1 + scale) + shift)


class Denoiser(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(LEN, D)
        self.time = TimeEmbedding(D)
        self.blocks = nn.ModuleList(Block(D) for _ in range(4))
        self.norm = nn.LayerNorm(D)
        self.out = nn.Linear(D, LEN)

    def forward(self, x, t):
        h, emb = self.inp(x), self.time(t)
        for b in self.blocks:
            h = b(h, emb)
        return self.out(self.norm(h))


def schedule(t):
    return torch.cos(0.5 * math.pi * t)[:, None], torch.sin(0.5 * math.pi * t)[:, None]


def diffusion_loss(model, x0):
    t = torch.rand(x0.size(0))
    alpha, sigma = schedule(t)
    eps = torch.randn_like(x0)
    xt = alpha * x0 + sigma * eps
    if MENDED:
        alpha = alpha.clamp(min=0.3)
    pred = model(xt, t)
    x0_hat = x0 + sigma * (eps - pred) / alpha
    return (x0_hat - x0).pow(2).mean()


g = torch.Generator().manual_seed(3)
train, test = make_signals(6000, g), make_signals(512, g)
t_grid = (torch.arange(512) + 0.5) / 512
test_eps = torch.randn(512, LEN, generator=g)


@torch.no_grad()
def noise_error(model):
    a, s = schedule(t_grid)
    return (model(a * test + s * test_eps, t_grid) - test_eps).pow(2).mean().item()


model = Denoiser()
ema = {k: v.clone() for k, v in model.state_dict().items()}
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
perm, at = torch.randperm(len(train)), 0
for step in range(1, STEPS + 1):
    if at + BATCH > len(perm):
        perm, at = torch.randperm(len(train)), 0
    x0 = train[perm[at : at + BATCH]]
    at += BATCH
    loss = diffusion_loss(model, x0)
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        for k, v in model.state_dict().items():
            ema[k].lerp_(v, 0.02)
    if step % 20 == 0 or step == 1:
        print(f"step {step:4d}  loss {loss.item():.4f}")

last = noise_error(model)
model.load_state_dict(ema)
print(f"final noise mse {last:.4f}  (averaged weights {noise_error(model):.4f}, predicting zero gives 1.0)")
