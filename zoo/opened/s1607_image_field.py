# expect: sick
# symptom: the loss falls quickly in the first 200 steps, then flattens at a floor several times too high; the decayed learning rate brings no more gain, PSNR stays poor
# axis: precision
# cause: the whole model including the weights that the optimizer updates is in bfloat16 with no fp32 master copy; late small Adam updates are below half a bf16 unit of the weights and round to zero
# says: bf16|bfloat16|master (weight|copy|param)|round(s|ed|ing)?.{0,40}(zero|away|off|update)|(half|low|reduced)[- ]precision.{0,60}(weight|param|update)|update.{0,60}(lost|vanish|too small|swallow|below)
# onset_step: 250
# fix: keep the parameters in fp32 and use autocast for the compute (or an optimizer with fp32 master weights / stochastic rounding)
# mended: parameters stay fp32, forward under bf16 autocast
import math
import os
import time
import torch
import torch.nn as nn

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(6)

SIZE, BANDS, BATCH, STEPS = 96, 6, 1024, 700


def picture():
    """Smooth shading, a few discs and a fine stripe pattern, three colours in [0, 1]."""
    u = torch.linspace(-1, 1, SIZE)
    yy, xx = torch.meshgrid(u, u, indexing="ij")
    img = torch.stack([0.5 + 0.3 * torch.sin(2 * xx + k) * torch.cos(3 * yy - k) for k in range(3)], -1)
    for cx, cy, r, c in [(-0.4, 0.3, 0.3, 0), (0.5, -0.2, 0.35, 1), (0.1, 0.6, 0.2, 2)]:
        inside = torch.sigmoid((r - ((xx - cx) ** 2 + (yy - cy) ** 2).sqrt()) * 30)
        img[..., c] = img[..., c] * (1 - inside) + inside * 0.9
    img = img + 0.08 * torch.sin(18 * xx + 9 * yy)[..., None]
    return torch.stack([xx, yy], -1).view(-1, 2), img.clamp(0, 1).view(-1, 3)


class Field(nn.Module):
    def __init__(self, hid=128, depth=4):
        super().__init__()
        dims = [2 + 4 * BANDS] + [hid] * depth
        mods = []
        for a, b in zip(dims[:-1], dims[1:]):
            mods += [nn.Linear(a, b), nn.ReLU()]
        self.net = nn.Sequential(*mods, nn.Linear(hid, 3))
        self.register_buffer("freq", math.pi * 2.0 ** torch.arange(BANDS) / 2, persistent=False)

    def forward(self, feats):
        return torch.sigmoid(self.net(feats))


def encode(xy, freq):
    a = xy[:, :, None] * freq
    return torch.cat([xy, a.sin().flatten(1), a.cos().flatten(1)], 1)


def main():
    xy, rgb = picture()
    model = Field()
    feats = encode(xy, model.freq)
    if not MENDED:
        model = model.to(torch.bfloat16)
        feats = feats.to(torch.bfloat16)
    opt = torch.optim.Adam(model.parameters(), lr=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, STEPS, eta_min=1e-5)
    g = torch.Generator().manual_seed(1)
    run, t0 = 0.0, time.time()
    for step in range(STEPS):
        i = torch.randint(0, len(xy), (BATCH,), generator=g)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=MENDED):
            pred = model(feats[i])
        loss = (pred.float() - rgb[i]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        run += loss.item()
        if (step + 1) % 10 == 0:
            mse = run / 10
            print(
                f"step {step + 1:4d} lr {sched.get_last_lr()[0]:.1e} mse {mse:.5f} psnr {-10 * math.log10(mse):.2f} ({time.time() - t0:.1f}s)",
                flush=True,
            )
            run = 0.0


if __name__ == "__main__":
    main()
