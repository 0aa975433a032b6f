# expect: sick
# symptom: training goes well for a few hundred steps, then the loss turns NaN when a new recorder's clips come in and never recovers
# axis: precision
# cause: the epsilon 1e-8 underflows to zero in float16, so the log of a digitally silent frame's power is -inf and the normalised features become NaN
# says: (log|eps\w*|1e-8|underflow|silen\w*|zero).*(half|fp16|float16|-?inf|underflow)|(half|fp16|float16|-inf).*(log|eps\w*|1e-8|underflow|silen\w*)
# onset_step: 240
# fix: take the logarithm in float32 (or use an epsilon that float16 can hold, such as 1e-4)
# mended: yes
import math
import os

import torch
from torch import nn

MENDED = os.environ.get("MENDED") == "1"

SR = 4000
CLIP = 2000
N_FFT = 128
HOP = 64
BANDS = 20
WORDS = 6


class SessionReader:
    """Streams recording sessions one after the other."""

    def __init__(self, sessions, seed, batch=32):
        self.sessions = sessions
        self.batch = batch
        self.gen = torch.Generator().manual_seed(seed)
        self.formants = torch.tensor(
            [[300, 900], [300, 1400], [550, 900], [550, 1400], [800, 1200], [800, 1700]], dtype=torch.float
        )

    def utter(self, word, gate):
        t = torch.arange(CLIP) / SR
        g = self.gen
        f = self.formants[word] * (1 + 0.06 * torch.randn(2, generator=g))
        start = 0.05 + 0.12 * torch.rand(1, generator=g)
        dur = 0.15 + 0.1 * torch.rand(1, generator=g)
        env = torch.sigmoid((t - start) * 200) * torch.sigmoid((start + dur - t) * 200)
        wave = sum(torch.sin(2 * math.pi * f[i] * t + 6.28 * torch.rand(1, generator=g)) for i in range(2))
        wave = 0.25 * env * wave + 0.03 * torch.randn(CLIP, generator=g)
        if gate:
            wave = wave * (env > 0.02)
        return wave

    def __iter__(self):
        for name, gate, n_batches in self.sessions:
            for _ in range(n_batches):
                words = torch.randint(0, WORDS, (self.batch,), generator=self.gen)
                waves = torch.stack([self.utter(int(w), gate) for w in words])
                yield name, waves, words


class BandFeatures(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("window", torch.hann_window(N_FFT))
        fb = torch.zeros(N_FFT // 2 + 1, BANDS)
        for i in range(N_FFT // 2 + 1):
            fb[i, min(i * BANDS // (N_FFT // 2 + 1), BANDS - 1)] = 1.0
        self.register_buffer("fb", fb / fb.sum(0, keepdim=True))

    @torch.no_grad()
    def forward(self, wave):
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True)
        power = spec.abs().pow(2).transpose(1, 2) @ self.fb
        if not MENDED:
            power = power.half()
        feats = torch.log(power + 1e-8).float()
        mean = feats.mean((1, 2), keepdim=True)
        std = feats.std((1, 2), keepdim=True)
        return (feats - mean) / (std + 1e-5)


class WordSpotter(nn.Module):
    def __init__(self, hidden=48):
        super().__init__()
        self.features = BandFeatures()
        self.conv = nn.Sequential(
            nn.Conv1d(BANDS, hidden, 5, padding=2),
            nn.GELU(),
            nn.Conv1d(hidden, hidden, 5, padding=2, stride=2),
            nn.GELU(),
        )
        self.rnn = nn.GRU(hidden, hidden, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * hidden, WORDS)

    def forward(self, wave):
        h = self.conv(self.features(wave).transpose(1, 2)).transpose(1, 2)
        h, _ = self.rnn(h)
        return self.out(h.amax(1))


@torch.no_grad()
def evaluate(model, reader):
    model.eval()
    hit = n = 0
    for _, wave, word in reader:
        hit += (model(wave).argmax(1) == word).sum().item()
        n += len(word)
    model.train()
    return hit / n


if __name__ == "__main__":
    torch.manual_seed(11)
    torch.set_num_threads(1)
    train = SessionReader([("lab", False, 120), ("office", False, 120), ("handset", True, 120)], seed=1)
    model = WordSpotter()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    warmup = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, total_iters=30)
    loss_fn = nn.CrossEntropyLoss()
    for step, (session, wave, word) in enumerate(train, 1):
        loss = loss_fn(model(wave), word)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        warmup.step()
        if step % 20 == 0:
            print(f"step {step:4d} [{session}] loss {loss.item():.4f}")
        if step % 120 == 0:
            dev = SessionReader([("dev", False, 4), ("dev-handset", True, 4)], seed=99)
            print(f"step {step:4d} dev accuracy {evaluate(model, dev):.3f}")
