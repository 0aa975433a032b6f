# expect: sick
# symptom: the loss goes down to a low value, the job is resumed from its checkpoint, and the first loss after the resume is back at the level of an untrained model
# axis: harness
# cause: the checkpoint was saved from a DataParallel-wrapped model (keys with the "module." prefix) and loaded into the bare model with strict=False, so no key matches and the resumed model keeps its random weights
# says: module\.|prefix|strict\s*=?\s*false|missing.{0,15}key|unexpected.{0,15}key|key.{0,80}(mismatch|match)|(weight|model|checkpoint|state.?dict|parameter)s?.{0,80}(not|never|weren.?t|wasn.?t|isn.?t|fail).{0,80}(load|restor)
# onset_step: 320
# fix: strip the "module." prefix (or save model.module.state_dict()) and load with strict=True
# mended: the state dict saved is that of the unwrapped model
"""ViT on small synthetic pictures, trained in two jobs with a checkpoint between them."""

import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(21)

CLASSES, SIZE, PATCH, BATCH = 8, 16, 4, 32


def make_pictures(n, gen):
    """Class = orientation of a sinusoidal grating with random phase and frequency."""
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    angle = y.float() * torch.pi / CLASSES
    freq = 0.7 + 0.5 * torch.rand(n, generator=gen)
    phase = 6.28 * torch.rand(n, generator=gen)
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    arg = xx[None] * angle.cos()[:, None, None] + yy[None] * angle.sin()[:, None, None]
    x = torch.sin(freq[:, None, None] * arg + phase[:, None, None])
    x = x + 1.0 * torch.randn(n, SIZE, SIZE, generator=gen)
    return x.unsqueeze(1), y


class ViT(nn.Module):
    def __init__(self, dim=48, depth=2, heads=4):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, PATCH, stride=PATCH)
        n = (SIZE // PATCH) ** 2
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, CLASSES)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(h.size(0), -1, -1), h], dim=1) + self.pos
        return self.head(self.norm(self.encoder(h))[:, 0])


class Trainer:
    def __init__(self, model, data, total_steps, lr=1e-3):
        self.model, self.data = model, data
        self.opt = torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.02)
        self.sched = torch.optim.lr_scheduler.LambdaLR(
            self.opt, lambda s: min(1.0, (s + 1) / 40) * max(0.05, 1 - s / total_steps)
        )
        self.step = 0

    def save(self, path):
        net = self.model.module if MENDED else self.model
        torch.save(
            {
                "model": net.state_dict(),
                "opt": self.opt.state_dict(),
                "sched": self.sched.state_dict(),
                "step": self.step,
                "rng": torch.get_rng_state(),
            },
            path,
        )

    def load(self, path):
        ckpt = torch.load(path, weights_only=True)
        self.model.load_state_dict(ckpt["model"], strict=False)
        self.opt.load_state_dict(ckpt["opt"])
        self.sched.load_state_dict(ckpt["sched"])
        self.step = ckpt["step"]
        torch.set_rng_state(ckpt["rng"])
        print(f"resumed from step {self.step}")

    def run(self, until):
        x, y = self.data
        self.model.train()
        while self.step < until:
            rows = torch.randint(0, len(y), (BATCH,))
            loss = F.cross_entropy(self.model(x[rows]), y[rows])
            self.opt.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.opt.step()
            self.sched.step()
            if self.step % 20 == 0:
                print(f"step {self.step} loss {loss.item():.4f} lr {self.sched.get_last_lr()[0]:.2e}")
            self.step += 1

    @torch.no_grad()
    def accuracy(self, x, y):
        self.model.eval()
        return (self.model(x).argmax(1) == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(1)
    train, valid = make_pictures(6000, gen), make_pictures(600, gen)
    total = 520
    path = os.path.join(tempfile.mkdtemp(), "last.pt")

    first = Trainer(nn.DataParallel(ViT()), train, total)
    first.run(until=320)
    print(f"job 1 done, accuracy {first.accuracy(*valid):.3f}")
    first.save(path)

    second = Trainer(ViT(), train, total)
    second.load(path)
    second.run(until=total)
    print(f"job 2 done, accuracy {second.accuracy(*valid):.3f}")


if __name__ == "__main__":
    main()
