# expect: sick
# symptom: loss is low and smooth, the job is resumed from its checkpoint without any error, and the loss jumps back to that of an untrained model
# axis: harness
# cause: the checkpoint was saved from the DataParallel wrapper, so its keys begin with "module."; load_state_dict(strict=False) matches none of them and the resumed model keeps its random weights
# says: strict ?= ?false|module\.|prefix|(missing|unexpected|mismatch\w*|unmatched|different|renamed|wrong).{0,40}(key|param\w* name|name)|(key|name)s?.{0,60}(not match|n[o']t match|mismatch|differ|missing|unexpected|ignored)|(weight|param\w*|model|state.?dict|checkpoint)s?.{0,60}(not|never|n't|none|without|silently|fail\w*|no).{0,30}(load|restor|match)|(resum\w*|continu\w*).{0,60}(random|untrained|fresh(ly)? initiali[sz]ed|re-?initiali[sz]ed).{0,20}(weight|model|param|network)?
# onset_step: 300
# fix: strip the "module." prefix (or save wrapper.module.state_dict()) and load strictly
# mended: strips the prefix of the keys before loading
import io
import os
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)
np.random.seed(5)

CLASSES = 10
SIZE = 24
PATCH = 4


def make_images(n, rng):
    """Oriented gratings on a noisy background; the class is the orientation."""
    labels = rng.integers(0, CLASSES, size=n)
    yy, xx = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    imgs = np.empty((n, 1, SIZE, SIZE), dtype=np.float32)
    for i, c in enumerate(labels):
        theta = np.pi * (c + 0.25 * rng.uniform(-1, 1)) / CLASSES
        freq = rng.uniform(3.0, 4.5)
        wave = np.sin(2 * np.pi * freq * (xx * np.cos(theta) + yy * np.sin(theta)) + rng.uniform(0, 6.28))
        imgs[i, 0] = wave + 0.6 * rng.normal(size=(SIZE, SIZE))
    return torch.from_numpy(imgs), torch.from_numpy(labels)


class ViT(nn.Module):
    def __init__(self, d=48, depth=2, heads=4):
        super().__init__()
        n = (SIZE // PATCH) ** 2
        self.patch = nn.Conv2d(1, d, PATCH, stride=PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, d))
        self.pos = nn.Parameter(0.02 * torch.randn(1, n + 1, d))
        layer = nn.TransformerEncoderLayer(
            d, heads, 2 * d, dropout=0.0, batch_first=True, norm_first=True, activation="gelu"
        )
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, CLASSES)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1) + self.pos
        return self.head(self.norm(self.blocks(x))[:, 0])


class Trainer:
    def __init__(self, data, val, parallel, lr=2e-3):
        self.x, self.y = data
        self.val = val
        self.model = ViT()
        self.net = nn.DataParallel(self.model) if parallel else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=lr, betas=(0.9, 0.999), weight_decay=0.01)
        self.base_lr = lr
        self.step = 0
        self.gen = torch.Generator().manual_seed(1)
        self.t0 = time.time()

    def lr_at(self, step):
        return self.base_lr * min(1.0, (step + 1) / 40)

    def save(self):
        buf = io.BytesIO()
        torch.save(
            {
                "model": self.net.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "step": self.step,
                "rng": self.gen.get_state(),
            },
            buf,
        )
        return buf.getvalue()

    def resume(self, blob):
        ckpt = torch.load(io.BytesIO(blob))
        state = ckpt["model"]
        if MENDED:
            state = {k.removeprefix("module."): v for k, v in state.items()}
        # a run may come with another head than its checkpoint
        self.net.load_state_dict(state, strict=False)
        self.optimizer.load_state_dict(ckpt["optimizer"])
        self.step = ckpt["step"]
        self.gen.set_state(ckpt["rng"])
        print(f"resumed at step {self.step}")

    def train_until(self, stop):
        self.net.train()
        while self.step < stop:
            idx = torch.randint(0, len(self.x), (32,), generator=self.gen)
            for g in self.optimizer.param_groups:
                g["lr"] = self.lr_at(self.step)
            loss = F.cross_entropy(self.net(self.x[idx]), self.y[idx])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            if self.step % 10 == 0:
                print(
                    f"step {self.step} loss {loss.item():.4f} lr {self.lr_at(self.step):.5f} t {time.time() - self.t0:.1f}"
                )
            self.step += 1

    @torch.no_grad()
    def validate(self):
        self.net.eval()
        acc = (self.net(self.val[0]).argmax(1) == self.val[1]).float().mean().item()
        print(f"val accuracy {acc:.3f}")


def main():
    rng = np.random.default_rng(0)
    train, val = make_images(4000, rng), make_images(500, rng)
    first = Trainer(train, val, parallel=True)
    first.train_until(300)
    first.validate()
    blob = first.save()
    del first
    # the first job ran on the big node until its time limit; the second one gets a single device
    second = Trainer(train, val, parallel=False)
    second.resume(blob)
    second.train_until(420)
    second.validate()


if __name__ == "__main__":
    main()
