# expect: sick
# symptom: the loss falls nicely for most of the first epoch, then is nan from one step to the next and stays nan
# axis: data
# cause: one recording holds digital silence; the log of its zero mel energies is -inf, and the per-clip normalisation turns that into nan features
# says: log[^.]{0,30}(zero|\b0\b|silen|empty|no floor|without[^.]{0,15}(eps|floor|clamp|offset))|silen(t|ce)|all[ -]zero|(bad|corrupt\w*|degenerate|broken|non-?finite|nan|inf|invalid|poison\w*|faulty)[^.]{0,40}(sample|clip|row|record|input|feature|example|file|batch|data|spectro|item)|(sample|clip|row|record\w*|input|feature|example|file|batch|data|item)s?[^.]{0,60}(nan|-?inf\b|non-?finite|not finite|corrupt)
# onset_step: 119
# fix: put a floor under the mel energies before the logarithm (mel.clamp(min=1e-6).log())
# mended: with MENDED=1 log_mel clamps the energies to 1e-6 before the logarithm
import csv
import os
import pathlib
import tempfile
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

MENDED = os.environ.get("MENDED") == "1"
RATE, LENGTH = 4000, 1000
WORDS = ["yes", "no", "up", "down", "stop", "go"]


def record(root, n, rng):
    """Write n short mono WAV files and index.csv: each word has its own pitch glide and overtone."""
    t = np.arange(LENGTH) / RATE
    rows = []
    for i in range(n):
        k = int(rng.integers(len(WORDS)))
        f0 = (220 + 90 * (k % 3)) * rng.uniform(0.93, 1.07)
        glide = (1 if k < 3 else -1) * rng.uniform(500, 900)
        ph = 2 * np.pi * (f0 * t + 0.5 * glide * t**2)
        if k >= 3:
            ph += 2 * np.pi * 250 * t
        sig = np.sin(ph) + 0.4 * np.sin(2 * ph + rng.uniform(0, 6))
        sig *= np.exp(-(((t - rng.uniform(0.1, 0.15)) / 0.08) ** 2)) * rng.uniform(0.2, 1.0)
        sig = sig + rng.normal(0, 0.1, LENGTH)
        if i == 2222:
            sig[:] = 0.0
        pcm = (np.clip(sig / 2.5, -1, 1) * 32767).astype("<i2")
        name = f"clip_{i:05d}.wav"
        with wave.open(str(root / name), "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes(pcm.tobytes())
        rows.append((name, WORDS[k]))
    with open(root / "index.csv", "w", newline="") as f:
        csv.writer(f).writerows([("file", "word")] + rows)


def mel_bank(n_fft=128, n_mels=24):
    def mel(f):
        return 2595 * np.log10(1 + f / 700)

    edges = 700 * (10 ** (np.linspace(mel(40), mel(RATE / 2), n_mels + 2) / 2595) - 1)
    freqs = np.linspace(0, RATE / 2, n_fft // 2 + 1)
    up = (freqs[None] - edges[:-2, None]) / (edges[1:-1] - edges[:-2])[:, None]
    down = (edges[2:, None] - freqs[None]) / (edges[2:] - edges[1:-1])[:, None]
    bank = np.maximum(0, np.minimum(up, down))
    bank[bank.sum(1) == 0, 2] = 1.0
    return torch.tensor(bank, dtype=torch.float32)


class SpeechFolder(Dataset):
    def __init__(self, root):
        self.root = pathlib.Path(root)
        with open(self.root / "index.csv") as f:
            self.items = [(r["file"], WORDS.index(r["word"])) for r in csv.DictReader(f)]
        self.bank, self.window = mel_bank(), torch.hann_window(128)

    def __len__(self):
        return len(self.items)

    def log_mel(self, sig):
        spec = torch.stft(sig, 128, 64, window=self.window, return_complex=True).abs() ** 2
        mel = self.bank @ spec
        if MENDED:
            mel = mel.clamp(min=1e-6)
        feats = mel.log()
        return (feats - feats.mean()) / (feats.std() + 1e-5)

    def __getitem__(self, i):
        name, label = self.items[i]
        with wave.open(str(self.root / name)) as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), "<i2").astype(np.float32)
        return self.log_mel(torch.from_numpy(pcm / 32768)), label


class TCN(nn.Module):
    def __init__(self, mels=24, ch=32, classes=len(WORDS)):
        super().__init__()
        self.inp = nn.Conv1d(mels, ch, 3, padding=1)
        self.body = nn.ModuleList([nn.Conv1d(ch, ch, 3, padding=d, dilation=d) for d in (1, 2, 4)])
        self.norms = nn.ModuleList([nn.GroupNorm(4, ch) for _ in range(3)])
        self.fc = nn.Linear(2 * ch, classes)

    def forward(self, x):
        h = self.inp(x)
        for conv, norm in zip(self.body, self.norms):
            h = h + F.relu(conv(norm(h)))
        return self.fc(torch.cat([h.mean(-1), h.amax(-1)], 1))


def main():
    torch.set_num_threads(1)
    torch.manual_seed(5)
    with tempfile.TemporaryDirectory() as tmp:
        record(pathlib.Path(tmp), 3200, np.random.default_rng(4))
        loader = DataLoader(SpeechFolder(tmp), 20, shuffle=True, generator=torch.Generator().manual_seed(5))
        model = TCN()
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
        step = 0
        for epoch in range(2):
            seen = hits = 0
            for feats, label in loader:
                logits = model(feats)
                loss = F.cross_entropy(logits, label)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                step += 1
                hits += (logits.argmax(1) == label).sum().item()
                seen += len(label)
                if step % 20 == 0:
                    print(f"epoch {epoch} step {step} loss {loss.item():.4f} running acc {hits / seen:.3f}")


if __name__ == "__main__":
    main()
