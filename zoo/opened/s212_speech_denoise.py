# expect: sick
# symptom: the loss falls for 19 steps, the loss of step 20 is a normal number too, but from step 21 on it is NaN
# axis: loss
# cause: the magnitude in the spectral loss is sqrt(re^2 + im^2); a clip of digital silence gives exactly 0, where the derivative of the square root is infinite
# says: (?i)singular-operation|sqrt|square root|(magnitude|norm|spectr)\w*.{0,60}(\b0(?![.\d])|zero|silen)|silen\w+
# onset_step: 20
# fix: an epsilon under the root
# mended: (re^2 + im^2 + 1e-9).sqrt()
import os

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)
torch.manual_seed(212)
B, N, STEPS = 16, 128, 220
EPS = 1e-9 if os.environ.get("MENDED") == "1" else 0.0
gen = torch.Generator().manual_seed(2)
f = torch.randint(2, 14, (B * STEPS, 1), generator=gen)
phase = 6.28 * torch.rand(B * STEPS, 1, generator=gen)
clean = torch.sin(6.2832 * f * torch.arange(N) / N + phase) * (0.3 + torch.rand(B * STEPS, 1, generator=gen))
noisy = clean + 0.4 * torch.randn(B * STEPS, N, generator=gen)
clean[19 * B + 4], noisy[19 * B + 4] = 0.0, 0.0


class Denoise(nn.Module):
    def __init__(self, c=24):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, c, 9, padding=4, bias=False),
            nn.LeakyReLU(0.1),
            nn.Conv1d(c, c, 9, padding=4, bias=False),
            nn.LeakyReLU(0.1),
            nn.Conv1d(c, 1, 9, padding=4, bias=False),
        )

    def forward(self, x):
        return self.net(x[:, None])[:, 0]


def magnitude(x):
    s = torch.fft.rfft(x.unfold(1, 32, 16) * torch.hann_window(32))
    return (s.real**2 + s.imag**2 + EPS).sqrt()


net = Denoise()
opt = torch.optim.Adam(net.parameters(), lr=2e-3)
for step, (x, y) in enumerate(DataLoader(TensorDataset(noisy, clean), batch_size=B), 1):
    out = net(x)
    loss = (out - y).abs().mean() + 0.2 * (magnitude(out) - magnitude(y)).abs().mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0 or 17 < step < 24:
        print(f"step {step} loss {loss.item():.4f}")
