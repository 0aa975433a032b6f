# expect: sick
# symptom: training is smooth for the first dozens of steps, then the loss turns NaN at one batch and stays NaN
# axis: precision
# cause: the log-mel features are computed in float16, where the 1e-10 floor rounds to zero, so frames of digital silence give log(0) = -inf and then NaN features and weights
# says: log\s*\(?(of )?(0|zero)|log.*(-inf|zero|underflow)|(1e-?10|eps|epsilon|floor).*(underflow|round|zero|too small|vanish|flush|half|fp16|float16)|(half|fp16|float16).*(underflow|eps|floor|log|1e-?10)|underflow.*(half|fp16|float16)
# onset_step: 66
# fix: take the log in float32 (cast to half afterwards) or use a floor that float16 can hold
# mended: yes
"""Keyword spotting on short clips: log-mel front end, cached features, small GRU."""

import math
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class AudioConfig:
    sample_rate: int = 8000
    clip_len: int = 3200
    n_fft: int = 256
    hop: int = 128
    n_mels: int = 24


KEYWORDS = {
    "yes": (500, 900),
    "no": (900, 500),
    "stop": (1400, 700),
    "go": (700, 1400),
    "left": (500, 1400),
    "right": (1400, 500),
}


def synth_clip(freqs, cfg, gen):
    half = cfg.clip_len // 2
    t = torch.arange(half) / cfg.sample_rate
    parts = []
    for f in freqs:
        f = f * (1 + 0.12 * torch.randn(1, generator=gen).item())
        phase = 2 * math.pi * torch.rand(1, generator=gen).item()
        amp = 0.1 + 0.25 * torch.rand(1, generator=gen).item()
        parts.append(amp * torch.sin(2 * math.pi * f * t + phase))
    return torch.cat(parts) + 0.3 * torch.randn(cfg.clip_len, generator=gen)


def build_corpus(n, cfg, seed, short_every=0):
    gen = torch.Generator().manual_seed(seed)
    names = list(KEYWORDS)
    waves, labels = [], []
    for i in range(n):
        k = torch.randint(len(names), (1,), generator=gen).item()
        w = synth_clip(KEYWORDS[names[k]], cfg, gen)
        if short_every and i % short_every == short_every - 1:
            w[-600:] = 0.0
        waves.append(w)
        labels.append(k)
    return torch.stack(waves), torch.tensor(labels)


def mel_filterbank(cfg):
    def to_mel(f):
        return 2595 * math.log10(1 + f / 700)

    def to_hz(m):
        return 700 * (10 ** (m / 2595) - 1)

    edges = torch.tensor(
        [to_hz(m) for m in torch.linspace(to_mel(60), to_mel(cfg.sample_rate / 2), cfg.n_mels + 2).tolist()]
    )
    freqs = torch.linspace(0, cfg.sample_rate / 2, cfg.n_fft // 2 + 1)
    lo, mid, hi = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    fb = torch.minimum((freqs - lo) / (mid - lo), (hi - freqs) / (hi - mid)).clamp(min=0)
    return fb / fb.sum(1, keepdim=True).clamp(min=1e-3)


class FrontEnd:
    def __init__(self, cfg):
        self.cfg = cfg
        self.window = torch.hann_window(cfg.n_fft)
        self.fb = mel_filterbank(cfg)

    def __call__(self, waves):
        spec = (
            torch.stft(waves, self.cfg.n_fft, self.cfg.hop, window=self.window, center=False, return_complex=True)
            .abs()
            .pow(2)
        )
        mel = torch.einsum("mf,bft->btm", self.fb, spec)
        if not MENDED:
            mel = mel.half()
        logmel = torch.log(mel + 1e-10)
        return logmel.half()


class KeywordNet(nn.Module):
    def __init__(self, n_mels, n_classes, hidden=40):
        super().__init__()
        self.norm = nn.LayerNorm(n_mels)
        self.gru = nn.GRU(n_mels, hidden, batch_first=True)
        self.head = nn.Linear(2 * hidden, n_classes)

    def forward(self, x):
        h, _ = self.gru(self.norm(x))
        return self.head(torch.cat([h.mean(1), h[:, h.size(1) // 2]], -1))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    acc = (model(x.float()).argmax(-1) == y).float().mean().item()
    model.train()
    return acc


def main():
    torch.manual_seed(2)
    cfg = AudioConfig()
    front = FrontEnd(cfg)
    wav, lab = build_corpus(3200, cfg, seed=1, short_every=1550)
    dev_wav, dev_lab = build_corpus(256, cfg, seed=2)
    feats, dev_feats = front(wav), front(dev_wav)
    print(f"cached {tuple(feats.shape)} features, {feats.element_size() * feats.numel() / 2**20:.1f} MiB")
    loader = DataLoader(TensorDataset(feats, lab), batch_size=32, shuffle=True, drop_last=True)
    model = KeywordNet(cfg.n_mels, len(KEYWORDS))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    loss_fn = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(4):
        for x, y in loader:
            loss = loss_fn(model(x.float()), y)
            opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            if step % 10 == 0:
                print(f"epoch {epoch} step {step:3d} loss {loss.item():.4f}")
            step += 1
        print(f"epoch {epoch} dev accuracy {accuracy(model, dev_feats, dev_lab):.3f}")


if __name__ == "__main__":
    main()
