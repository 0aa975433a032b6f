# expect: sick
# symptom: the loss falls and then stays at a poor level (blurry, blocky reconstruction, PSNR far below what the network can do); no error, no spikes
# axis: precision
# cause: the coordinates and their Fourier positional encoding are computed in bfloat16; 8 bits of mantissa cannot hold the positions and the large angles, so the high-frequency features are garbage
# says: bf16|bfloat16|half[- ]precision|low(er)?[- ]precision|16[- ]bit|mantissa|round(ed|ing|s)?[^.]{0,50}(coord|position|angle|freq|phase)|(coord|position|fourier|encoding|angle)\w*[^.]{0,60}(precision|quanti[sz]|round)
# onset_step: 0
# fix: compute coordinates, frequencies and sin/cos in float32 and cast only the finished features
# mended: the encoding is computed in float32
import math
import os
import time

import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(11)

STEPS, BATCH = 600, 2048
ORIGIN, EXTENT = 20.0, 8.0  # the survey site in metres


class Scene:
    """A procedural texture f(x, y) -> rgb over the site, sampled at continuous world positions."""

    def __init__(self, seed=2, n_waves=12):
        g = torch.Generator().manual_seed(seed)
        self.k = torch.randn(n_waves, 2, generator=g) * 2 * math.pi * torch.linspace(1, 5, n_waves)[:, None]
        self.phase = torch.rand(n_waves, generator=g) * 2 * math.pi
        self.colour = torch.randn(n_waves, 3, generator=g) / torch.linspace(1, 2.5, n_waves)[:, None]
        self.discs = torch.rand(10, 3, generator=g) * torch.tensor([1.0, 1.0, 0.1]) + torch.tensor([0, 0, 0.04])
        self.disc_rgb = torch.rand(10, 3, generator=g)

    def __call__(self, xy):
        xy = (xy - ORIGIN) / EXTENT
        waves = torch.sin(xy @ self.k.T + self.phase) @ self.colour
        rgb = torch.sigmoid(0.6 * waves)
        for (cx, cy, r), c in zip(self.discs, self.disc_rgb):
            d = ((xy - torch.stack([cx, cy])) ** 2).sum(-1).sqrt()
            a = torch.sigmoid((r - d) * 120)[:, None]
            rgb = rgb * (1 - a) + c * a
        return rgb


class FourierEncoding(nn.Module):
    def __init__(self, n_freqs=6, dtype=torch.bfloat16):
        super().__init__()
        self.dtype = dtype
        self.register_buffer("freqs", 2.0 ** torch.arange(n_freqs) * math.pi / EXTENT)
        self.out_dim = 2 + 4 * n_freqs

    def forward(self, xy):
        xy = xy.to(self.dtype)
        ang = (xy[..., None] * self.freqs.to(self.dtype)).flatten(-2)
        return torch.cat([xy / ORIGIN - 1, ang.sin(), ang.cos()], dim=-1)


class Field(nn.Module):
    def __init__(self, width=96, depth=3):
        super().__init__()
        self.enc = FourierEncoding(dtype=torch.float32 if MENDED else torch.bfloat16)
        layers, d = [], self.enc.out_dim
        for _ in range(depth):
            layers += [nn.Linear(d, width), nn.ReLU()]
            d = width
        self.mlp = nn.Sequential(*layers, nn.Linear(d, 3), nn.Sigmoid())

    def forward(self, xy):
        return self.mlp(self.enc(xy).float())


@torch.no_grad()
def psnr(field, scene, n=96):
    lin = (torch.arange(n) + 0.5) / n
    xy = ORIGIN + EXTENT * torch.stack(torch.meshgrid(lin, lin, indexing="xy"), -1).reshape(-1, 2)
    mse = ((field(xy) - scene(xy)) ** 2).mean().item()
    return -10 * math.log10(mse)


def main():
    scene, field = Scene(), Field()
    opt = torch.optim.Adam(field.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.1 ** (1 / STEPS))
    t0 = time.time()
    for step in range(STEPS):
        xy = ORIGIN + EXTENT * torch.rand(BATCH, 2)
        loss = ((field(xy) - scene(xy)) ** 2).mean()
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step:4d}  mse {loss.item():.5f}  psnr {psnr(field, scene):.2f} dB")
    print(f"done in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
