# expect: sick
# symptom: fine-tuning to new recordings hardly moves; the loss stays near its first value though gradients are healthy
# axis: precision
# cause: the whole model is cast to bfloat16 and the optimizer updates the bf16 weights directly; with the small fine-tuning rate most updates are below half a unit in the last place and round away
# says: bf16|bfloat16|half.?precision|round(ed|s|ing)?.{0,30}(away|zero|off|update)|master (cop|weight)|low.?precision|update.{0,60}(too small|below|lost|round|vanish|represent)
# onset_step: 0
# fix: keep fp32 weights (autocast to bf16 for the compute)
# mended: fp32 weights with autocast
import os
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)


@dataclass
class Config:
    mels: int = 20
    frames: int = 32
    words: int = 24
    dim: int = 64
    layers: int = 2
    batch: int = 24
    pretrain_steps: int = 200
    finetune_steps: int = 320
    pretrain_lr: float = 1e-3
    finetune_lr: float = 3e-5
    pure_bf16: bool = not MENDED
    seed: int = 14


class Recordings:
    """Log-mel like clips of a small vocabulary; a second microphone has another channel response."""

    def __init__(self, cfg, mic, seed):
        self.cfg = cfg
        base = torch.Generator().manual_seed(500)
        self.words = F.interpolate(torch.randn(cfg.words, cfg.mels, 6, generator=base), size=cfg.frames, mode="linear")
        m = torch.Generator().manual_seed(600 + mic)
        self.gain = 1.0 + 0.5 * mic * torch.randn(cfg.mels, 1, generator=m)
        self.tilt = 1.3 * mic * torch.randn(cfg.mels, 1, generator=m)
        self.g = torch.Generator().manual_seed(seed)

    def batch(self, n):
        y = torch.randint(0, self.cfg.words, (n,), generator=self.g)
        x = self.words[y]
        shifts = torch.randint(-4, 5, (n,), generator=self.g).tolist()
        x = torch.stack([torch.roll(a, s, dims=-1) for a, s in zip(x, shifts)])
        x = x * self.gain + self.tilt + 1.5 * torch.randn(x.shape, generator=self.g)
        return x.transpose(1, 2), y


class SpeechEncoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.front = nn.Conv1d(c.mels, c.dim, 5, stride=2, padding=2)
        self.pos = nn.Parameter(0.02 * torch.randn(1, c.frames // 2, c.dim))
        layer = nn.TransformerEncoderLayer(c.dim, 4, 2 * c.dim, dropout=0.0, batch_first=True, norm_first=True)
        self.enc = nn.TransformerEncoder(layer, c.layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(c.dim), nn.Linear(c.dim, c.words)

    def forward(self, x):
        h = F.gelu(self.front(x.transpose(1, 2))).transpose(1, 2) + self.pos
        return self.head(self.norm(self.enc(h)).mean(1))


@torch.no_grad()
def word_accuracy(model, x, y):
    model.eval()
    acc = (model(x.to(next(model.parameters()).dtype)).argmax(-1) == y).float().mean().item()
    model.train()
    return acc


def pretrain(cfg):
    model, data = SpeechEncoder(cfg), Recordings(cfg, 0, 1)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.pretrain_lr)
    for step in range(cfg.pretrain_steps):
        x, y = data.batch(cfg.batch)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"[pretrain] step {step} loss {loss.item():.4f}", flush=True)
    return model


def finetune(model, cfg):
    data, test = Recordings(cfg, 1, 3), Recordings(cfg, 1, 4).batch(400)
    dtype = torch.bfloat16 if cfg.pure_bf16 else torch.float32
    model = model.to(dtype)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.finetune_lr, weight_decay=0.01)
    print(f"[finetune] accuracy before {word_accuracy(model, *test):.3f}")
    for step in range(cfg.finetune_steps):
        x, y = data.batch(cfg.batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=not cfg.pure_bf16):
            logits = model(x.to(dtype))
        loss = F.cross_entropy(logits.float(), y)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        gnorm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        if step % 20 == 0:
            print(f"[finetune] step {step} loss {loss.item():.4f} gnorm {float(gnorm):.3f}", flush=True)
    print(f"[finetune] accuracy after {word_accuracy(model, *test):.3f}")


def main():
    cfg = Config()
    torch.manual_seed(cfg.seed)
    finetune(pretrain(cfg), cfg)


if __name__ == "__main__":
    main()
