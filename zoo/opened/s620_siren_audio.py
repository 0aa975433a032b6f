# expect: sick
# symptom: training goes well for ten epochs, then the loss is nan from one step to the next and stays nan
# axis: precision
# cause: the power spectrogram is squared in float16; once the gain augmentation makes clips loud enough its peaks pass 65504 and become inf, which the normalisation turns into NaN features
# says: ((fp16|float16|half|16.?bit|65504).{0,140}(overflow|range|inf\b|infinit|exceed|too large|out of range|square|power|spectr)|(overflow|exceed|inf\b|infinit).{0,140}(fp16|float16|half|65504|16.?bit)|(power|spectr\w*|squar\w*|magnitude|feature|input).{0,100}(overflow))
# onset_step: 501
# fix: compute the power spectrogram in float32
# mended: with MENDED=1 the magnitudes stay in float32 before they are squared
import os

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SR, N_FFT, HOP, N_MELS = 8000, 1024, 512, 32
CLASSES = ["steady", "rising", "falling", "wail", "pulsed", "two_tone"]


class SirenClips(Dataset):
    """One-second clips of six alarm sounds in street noise."""

    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        t = np.arange(SR) / SR
        self.wav = np.zeros((n, SR), dtype=np.float32)
        self.label = rng.integers(0, len(CLASSES), n)
        for i, c in enumerate(self.label):
            f0 = rng.uniform(500, 1200)
            if c == 0:
                f = np.full(SR, f0)
            elif c == 1:
                f = f0 + 900 * t
            elif c == 2:
                f = f0 + 900 * (1 - t)
            elif c == 3:
                f = f0 + 300 * np.sin(2 * np.pi * rng.uniform(1.5, 3) * t)
            elif c == 4:
                f = np.full(SR, f0)
            else:
                f = np.where((t * rng.uniform(4, 6)).astype(int) % 2 == 0, f0, f0 * 1.35)
            sig = np.sin(2 * np.pi * np.cumsum(f) / SR + rng.uniform(0, 6.28))
            if c == 4:
                sig *= (t * rng.uniform(3, 5)) % 1 < 0.5
            self.wav[i] = rng.uniform(0.15, 0.45) * sig + rng.uniform(0.2, 0.6) * rng.normal(size=SR)
        self.gain_db = 0.0

    def __len__(self):
        return len(self.wav)

    def __getitem__(self, i):
        wav = torch.from_numpy(self.wav[i])
        if self.gain_db > 0:
            db = (torch.rand(1) * 2 - 1) * self.gain_db
            wav = wav * 10 ** (db / 20)
        return wav, int(self.label[i])


def mel_bank():
    hz = torch.linspace(0, SR / 2, N_FFT // 2 + 1)
    mel = lambda f: 2595 * torch.log10(1 + f / 700)
    pts = torch.linspace(mel(torch.tensor(100.0)).item(), mel(torch.tensor(3600.0)).item(), N_MELS + 2)
    m = mel(hz)[None]
    up = (m - pts[:-2, None]) / (pts[1:-1] - pts[:-2])[:, None]
    down = (pts[2:, None] - m) / (pts[2:] - pts[1:-1])[:, None]
    return torch.minimum(up, down).clamp(min=0)


class LogMel(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))
        self.register_buffer("bank", mel_bank())

    @torch.no_grad()
    def forward(self, wav):
        spec = torch.stft(wav, N_FFT, HOP, window=self.window, return_complex=True).abs()
        if not MENDED:
            spec = spec.half()
        power = spec.square()
        feat = torch.log(self.bank @ power.float() + 1e-3)
        mean = feat.mean(dim=(1, 2), keepdim=True)
        std = feat.std(dim=(1, 2), keepdim=True)
        return (feat - mean) / (std + 1e-5)


class SirenNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = LogMel()
        self.conv = nn.Sequential(
            nn.Conv2d(1, 10, 3, padding=1),
            nn.BatchNorm2d(10),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
            nn.Conv2d(10, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d((2, 1)),
        )
        self.rnn = nn.GRU(16 * 8, 32, batch_first=True, bidirectional=True)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(64, len(CLASSES)))

    def forward(self, wav):
        h = self.conv(self.front(wav)[:, None])
        h = h.permute(0, 3, 1, 2).flatten(2)
        out, _ = self.rnn(h)
        return self.head(out.mean(1))


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    hits = sum((model(w).argmax(1) == y).sum().item() for w, y in loader)
    model.train()
    return hits / len(loader.dataset)


def main():
    torch.manual_seed(0)
    train, val = SirenClips(1600, 0), SirenClips(300, 1)
    train_loader = DataLoader(train, batch_size=32, shuffle=True, drop_last=True)
    val_loader = DataLoader(val, batch_size=100)
    model = SirenNet()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-2)
    step = 0
    for epoch in range(14):
        if epoch == 10:
            train.gain_db = 15.0
            print("gain augmentation on")
        for wav, y in train_loader:
            loss = F.cross_entropy(model(wav), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            step += 1
            if step % 25 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        if epoch % 2 == 1:
            print(f"epoch {epoch} val accuracy {evaluate(model, val_loader):.3f}", flush=True)


if __name__ == "__main__":
    main()
