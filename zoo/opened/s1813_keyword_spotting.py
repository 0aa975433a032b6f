# expect: sick
# symptom: keyword spotting trains well for some hundred steps, then the loss is nan and stays nan
# axis: precision
# cause: the power spectrum is kept in float16; a loud (clipped) recording has a bin above 65504, which becomes inf, and the mean normalisation of the log-mel turns inf into NaN
# says: (fp16|float16|half|16.?bit).{0,200}(overflow|range|\binf|65504|65,504|exceed|max|too (large|loud|big))|(overflow|65504|65,504|exceed|\binf).{0,200}(fp16|float16|half\b|16.?bit)
# onset_step: 470
# fix: keep the power spectrum (and the log-mel) in float32
# mended: stores the power spectrum in float32 instead of float16
import math
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(2)

SR, LENGTH, N_FFT, HOP, N_MEL = 8000, 4096, 1024, 256, 32
WORDS = 8
BATCH, STEPS = 12, 650
FEATURE_DTYPE = torch.float32 if MENDED else torch.float16


def mel_filters():
    def to_mel(f):
        return 2595 * math.log10(1 + f / 700)

    pts = 700 * (10 ** (np.linspace(to_mel(60), to_mel(SR / 2), N_MEL + 2) / 2595) - 1)
    bins = np.linspace(0, SR / 2, N_FFT // 2 + 1)
    fb = np.zeros((N_FFT // 2 + 1, N_MEL), np.float32)
    for m in range(N_MEL):
        up = (bins - pts[m]) / (pts[m + 1] - pts[m])
        down = (pts[m + 2] - bins) / (pts[m + 2] - pts[m + 1])
        fb[:, m] = np.maximum(0, np.minimum(up, down))
    return torch.from_numpy(fb / fb.sum(0, keepdims=True).clip(1e-3))


class ClipStream:
    """Synthetic spoken words: two formant tracks per word, a speaker pitch, a microphone gain."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        table = np.random.default_rng(99)
        self.f1 = table.uniform(300, 900, (WORDS, 3))
        self.f2 = table.uniform(1000, 2600, (WORDS, 3))

    def clip(self, word):
        r = self.rng
        t = np.arange(LENGTH) / SR
        pos = np.linspace(0, 2, LENGTH) + r.normal(0, 0.1)
        warp = r.uniform(0.9, 1.1)
        f1 = np.interp(pos, [0, 1, 2], self.f1[word]) * warp
        f2 = np.interp(pos, [0, 1, 2], self.f2[word]) * warp
        voice = 0.7 * np.sin(2 * np.pi * np.cumsum(f1) / SR) + 0.3 * np.sin(2 * np.pi * np.cumsum(f2) / SR)
        voice *= 0.8 + 0.2 * np.sin(2 * np.pi * r.uniform(3, 6) * t)
        hum = np.sin(2 * np.pi * r.choice([150.0, 180.0, 200.0]) * t)
        gain = np.exp(r.normal(math.log(0.22), 0.42))
        wave = gain * (voice + 0.35 * hum * r.random() + 0.5 * r.normal(0, 0.3, LENGTH))
        if r.random() < 0.0002:
            wave = wave + 1.2 * hum
        return np.clip(wave, -1, 1).astype(np.float32)

    def batch(self, n):
        y = self.rng.integers(0, WORDS, n)
        return torch.from_numpy(np.stack([self.clip(w) for w in y])), torch.from_numpy(y)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("fb", mel_filters())
        self.register_buffer("window", torch.hann_window(N_FFT))

    @torch.no_grad()
    def forward(self, wave):
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True)
        power = spec.abs().pow(2).to(FEATURE_DTYPE)
        mel = torch.log(power.transpose(1, 2).float() @ self.fb + 1e-5)
        return (mel - mel.mean((1, 2), keepdim=True)) / 3.0


class KWSNet(nn.Module):
    def __init__(self, dim=64):
        super().__init__()
        self.frontend = LogMel()
        self.conv = nn.Sequential(
            nn.Conv1d(N_MEL, dim, 3, padding=1),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
            nn.Conv1d(dim, dim, 3, padding=1),
            nn.BatchNorm1d(dim),
            nn.ReLU(),
        )
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, WORDS)

    def forward(self, wave):
        x = self.conv(self.frontend(wave).transpose(1, 2)).transpose(1, 2)
        out, _ = self.rnn(x)
        return self.head(out.mean(1))


def main():
    stream = ClipStream(39)
    model = KWSNet()
    opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-2)
    t0 = time.time()
    for step in range(STEPS):
        wave, y = stream.batch(BATCH)
        loss = F.cross_entropy(model(wave), y, label_smoothing=0.05)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} ({time.time() - t0:.1f}s)")
    model.eval()
    wave, y = ClipStream(77).batch(200)
    with torch.no_grad():
        acc = (model(wave).argmax(-1) == y).float().mean().item()
    print(f"test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
