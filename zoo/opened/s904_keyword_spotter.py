# expect: sick
# symptom: the keyword classifier trains well, then the loss is nan from one step to the next and never comes back
# axis: data
# cause: the log-spectrogram takes log(0) without an epsilon: one recording is pure digital silence, its log energies are -inf and its normalised features NaN
# says: (log\w*.{0,40}(of )?(zero|\b0\b|\(0\))|log.{0,60}(without|no|missing|lacks?).{0,20}(eps\w*|clamp|floor)|(silen\w+|all[ -_]?zero\w*|digital silence|zero clip|muted|empty (clip|recording)).{0,80}(log|nan|inf|clip|recording|sample|input|row|std)|(nan|inf|non-?finite)\w*.{0,40}(in|from|input|batch|feature|sample|row|data|spectrogram).{0,40}(input|batch|feature|sample|row|data|spectrogram|clip|log)|non-?finite.{0,20}(input|batch|data|feature)|(input|batch|data|feature|sample|clip|row|recording)s?\b.{0,30}(nan|-?inf|non-?finite))
# onset_step: 146
# fix: add a small epsilon (or clamp) before the log
# mended: the energies are clamped to 1e-10 before torch.log
import math
import os
import tempfile
import wave

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(11)
MENDED = os.environ.get("MENDED") == "1"
RATE, SECONDS = 4000, 0.5
WORDS = ["up", "down", "beep", "buzz", "background"]


def synth(word, rng):
    n = int(RATE * SECONDS)
    t = np.arange(n) / RATE
    f0 = rng.uniform(400, 700)
    env = np.exp(-(((t - rng.uniform(0.18, 0.32)) / 0.1) ** 2))
    if word == "up":
        s = np.sin(2 * np.pi * (f0 * t + 700 * t**2))
    elif word == "down":
        s = np.sin(2 * np.pi * ((f0 + 700) * t - 700 * t**2))
    elif word == "beep":
        s = np.sin(2 * np.pi * (f0 + 350) * t) * (np.sin(2 * np.pi * 12 * t) > 0)
    elif word == "buzz":
        s = np.sign(np.sin(2 * np.pi * (f0 / 3) * t)) * 0.7
    else:
        s = 0.0 * t
    return 0.3 * s * env + rng.uniform(0.01, 0.05) * rng.standard_normal(n)


def write_corpus(folder, n, seed):
    rng = np.random.default_rng(seed)
    index = []
    for i in range(n):
        label = int(rng.integers(len(WORDS)))
        gain = 1.0
        if seed == 5 and i == 1702:
            label, gain = 4, 0.0
        x = gain * synth(WORDS[label], rng)
        path = os.path.join(folder, f"{i:05d}_{WORDS[label]}.wav")
        with wave.open(path, "wb") as w:
            w.setnchannels(1)
            w.setsampwidth(2)
            w.setframerate(RATE)
            w.writeframes((np.clip(x, -1, 1) * 32767).astype("<i2").tobytes())
        index.append((path, label))
    return index


class LogSpectrogram:
    def __init__(self, n_fft=128, hop=64, bands=32):
        self.n_fft, self.hop = n_fft, hop
        self.window = torch.hann_window(n_fft)
        self.pool = (n_fft // 2) // bands

    def __call__(self, wav):
        spec = torch.stft(wav, self.n_fft, self.hop, window=self.window, return_complex=True).abs() ** 2
        energy = spec[1:].reshape(-1, self.pool, spec.shape[-1]).mean(1)
        if MENDED:
            energy = energy.clamp(min=1e-10)
        feat = torch.log(energy)
        return (feat - feat.mean()) / (feat.std() + 1e-5)


class SpeechCommands(Dataset):
    def __init__(self, index):
        self.index = index
        self.frontend = LogSpectrogram()

    def __len__(self):
        return len(self.index)

    def __getitem__(self, i):
        path, label = self.index[i]
        with wave.open(path, "rb") as w:
            pcm = np.frombuffer(w.readframes(w.getnframes()), dtype="<i2")
        return self.frontend(torch.from_numpy(pcm.astype(np.float32) / 32768.0)), label


class Spotter(nn.Module):
    def __init__(self, bands=32, width=48):
        super().__init__()
        self.conv1 = nn.Conv1d(bands, width, 5, padding=2)
        self.conv2 = nn.Conv1d(width, width, 5, padding=2, stride=2)
        self.gru = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, len(WORDS))

    def forward(self, x):
        h = F.relu(self.conv2(F.relu(self.conv1(x))))
        h, _ = self.gru(h.transpose(1, 2))
        return self.head(h.mean(1))


def accuracy(model, loader):
    with torch.no_grad():
        res = [(model(x).argmax(1) == y).float().mean().item() for x, y in loader]
    return sum(res) / len(res)


def main():
    with tempfile.TemporaryDirectory() as root:
        train_index = write_corpus(root, 2400, seed=5)
        val_index = write_corpus(tempfile.mkdtemp(dir=root), 240, seed=6)
        train = DataLoader(
            SpeechCommands(train_index), batch_size=16, shuffle=True, generator=torch.Generator().manual_seed(21)
        )
        val = DataLoader(SpeechCommands(val_index), batch_size=60)
        model = Spotter()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        step = 0
        for epoch in range(2):
            for feats, labels in train:
                opt.zero_grad()
                loss = F.cross_entropy(model(feats), labels)
                loss.backward()
                nn.utils.clip_grad_norm_(model.parameters(), 5.0)
                opt.step()
                step += 1
                if step % 20 == 0:
                    print(f"[{epoch}] {step:4d} loss {loss.item():.4f}")
            print(f"[{epoch}] val accuracy {accuracy(model, val):.3f}")


if __name__ == "__main__":
    main()
