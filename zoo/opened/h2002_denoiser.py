# expect: healthy
# symptom: the loss is negative and falls ever further below zero, and the output is never compared to the target's scale
# axis: none
# mended: none
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

SR = 2000


def make_clip(gen):
    n = int(torch.randint(700, 1200, (1,), generator=gen))
    t = torch.arange(n) / SR
    f0 = 80 + 120 * torch.rand(1, generator=gen)
    glide = 60 * (torch.rand(1, generator=gen) - 0.5)
    phase = 2 * math.pi * (f0 * t + glide * t**2)
    amps = torch.rand(4, generator=gen)
    clean = sum(a * torch.sin((k + 1) * phase) for k, a in enumerate(amps))
    clean = clean * (0.6 + 0.4 * torch.sin(2 * math.pi * 3 * t))
    noise = torch.randn(n, generator=gen)
    noise = noise - 0.7 * torch.roll(noise, 1)
    snr = -2 + 7 * torch.rand(1, generator=gen)
    scale = clean.norm() / noise.norm() * 10 ** (-snr / 20)
    return clean, clean + scale * noise


def batch_of(n, gen):
    pairs = [make_clip(gen) for _ in range(n)]
    lens = torch.tensor([len(c) for c, _ in pairs])
    width = int(lens.max())
    clean = torch.stack([F.pad(c, (0, width - len(c))) for c, _ in pairs])
    noisy = torch.stack([F.pad(m, (0, width - len(m))) for _, m in pairs])
    mask = (torch.arange(width)[None] < lens[:, None]).float()
    return noisy, clean, mask


class DilatedBlock(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.inp = nn.Conv1d(ch, 2 * ch, 1)
        self.dw = nn.Conv1d(2 * ch, 2 * ch, 3, padding=dilation, dilation=dilation, groups=2 * ch)
        self.norm = nn.GroupNorm(1, 2 * ch)
        self.out = nn.Conv1d(2 * ch, ch, 1)

    def forward(self, x):
        return x + self.out(self.norm(F.gelu(self.dw(F.gelu(self.inp(x))))))


class MaskNet(nn.Module):
    def __init__(self, ch=32, kernel=20):
        super().__init__()
        self.kernel = kernel
        self.enc = nn.Conv1d(1, ch, kernel, stride=kernel // 2, bias=False)
        self.blocks = nn.Sequential(*[DilatedBlock(ch, 2**i) for i in range(5)])
        self.to_mask = nn.Conv1d(ch, ch, 1)
        self.dec = nn.ConvTranspose1d(ch, 1, kernel, stride=kernel // 2, bias=False)

    def forward(self, wave):
        n = wave.shape[1]
        pad = (-(n - self.kernel)) % (self.kernel // 2)
        code = self.enc(F.pad(wave, (0, pad)).unsqueeze(1))
        mask = torch.sigmoid(self.to_mask(self.blocks(code)))
        return self.dec(code * mask).squeeze(1)[:, :n]


def si_snr(est, ref, mask, eps=1e-6):
    n = mask.sum(1, keepdim=True)
    est = (est - (est * mask).sum(1, keepdim=True) / n) * mask
    ref = (ref - (ref * mask).sum(1, keepdim=True) / n) * mask
    proj = (est * ref).sum(1, keepdim=True) / (ref.pow(2).sum(1, keepdim=True) + eps) * ref
    rest = est - proj
    return 10 * torch.log10((proj.pow(2).sum(1) + eps) / (rest.pow(2).sum(1) + eps))


def main():
    torch.manual_seed(4)
    torch.set_num_threads(1)
    gen = torch.Generator().manual_seed(10)
    dev = batch_of(48, torch.Generator().manual_seed(500))
    model = MaskNet()
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    sched = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, mode="max", factor=0.5, patience=1)
    total = 300
    for step in range(1, total + 1):
        noisy, clean, mask = batch_of(12, gen)
        loss = -si_snr(model(noisy), clean, mask).mean()
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 10 == 0:
            print(f"step {step} loss {loss.item():.3f}")
        if step % 50 == 0:
            model.eval()
            with torch.no_grad():
                before = si_snr(dev[0], dev[1], dev[2]).mean().item()
                after = si_snr(model(dev[0]), dev[1], dev[2]).mean().item()
            model.train()
            sched.step(after)
            print(f"step {step} dev SI-SNR {before:.2f} dB -> {after:.2f} dB")


if __name__ == "__main__":
    main()
