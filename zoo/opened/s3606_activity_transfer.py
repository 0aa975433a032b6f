# expect: sick
# symptom: the head on top of the pre-trained backbone learns slowly and the test accuracy stays poor
# axis: model
# cause: keys carry the prefix "encoder.", so load_state_dict(strict=False) loads nothing into the backbone
# says: strict|prefix|\bkeys?\b.{0,50}match|(weights|backbone|encoder|pre-?train).{0,50}(not|never).{0,20}load
# onset_step: 260
# fix: strip the prefix "encoder." from the keys of the checkpoint before they are loaded
# mended: the script applies that change if the environment has MENDED=1
"""Human activity recognition: pre-train an encoder on a big corpus, then adapt it to a new device."""

import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
LENGTH, CHANNELS = 96, 3


def motif_bank(n, seed):
    rng = np.random.default_rng(seed)
    raw = rng.standard_normal((n, CHANNELS, 16))
    smooth = np.apply_along_axis(lambda v: np.convolve(v, [0.25, 0.5, 0.25], "same"), 2, raw)
    return smooth / smooth.std(axis=(1, 2), keepdims=True)


BANK = motif_bank(12, 0)


def make_windows(n, recipes, seed):
    """An activity is a pair of movement motifs that turn up at arbitrary times in the window."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(recipes), n)
    x = 0.6 * rng.standard_normal((n, CHANNELS, LENGTH))
    for i in range(n):
        for slot, m in enumerate(recipes[y[i]]):
            at = slot * 48 + rng.integers(0, 32)
            x[i, :, at : at + 16] += rng.uniform(0.7, 1.2) * BANK[m]
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y)


class Encoder(nn.Module):
    def __init__(self, width=48):
        super().__init__()
        self.conv1 = nn.Conv1d(CHANNELS, width, 9, padding=4)
        self.norm1 = nn.GroupNorm(6, width)
        self.conv2 = nn.Conv1d(width, width, 9, padding=4)
        self.norm2 = nn.GroupNorm(6, width)

    def forward(self, x):
        h = F.max_pool1d(F.relu(self.norm1(self.conv1(x))), 2)
        h = F.relu(self.norm2(self.conv2(h)))
        return h.amax(dim=-1)


class PretrainModel(nn.Module):
    def __init__(self, n_out):
        super().__init__()
        self.encoder = Encoder()
        self.head = nn.Linear(48, n_out)

    def forward(self, x):
        return self.head(self.encoder(x))


class DeviceClassifier(nn.Module):
    """Frozen backbone, small trainable head."""

    def __init__(self, ckpt_path, n_out):
        super().__init__()
        self.backbone = Encoder()
        state = torch.load(ckpt_path)["model"]
        if MENDED:
            state = {k.removeprefix("encoder."): v for k, v in state.items()}
        self.backbone.load_state_dict(state, strict=False)  # the pre-training head is not needed
        self.backbone.requires_grad_(False)
        self.head = nn.Sequential(nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, n_out))

    def forward(self, x):
        return self.head(self.backbone(x))


def accuracy(model, x, y):
    with torch.no_grad():
        return (model(x).argmax(1) == y).float().mean().item()


def train(model, x, y, steps, batch, lr, tag, offset=0):
    opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=lr, weight_decay=1e-2)
    for step in range(steps):
        idx = torch.randint(0, len(x), (batch,))
        loss = F.cross_entropy(model(x[idx]), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0 or step == steps - 1:
            print(f"[{tag}] step {offset + step:4d} loss {loss.item():.4f}")
    return loss.item()


def main():
    torch.manual_seed(17)
    path = os.path.join(tempfile.mkdtemp(), "pretrained.pt")
    source = [(m,) for m in range(12)]
    px, py = make_windows(3000, source, 1)
    pre = PretrainModel(len(source))
    train(pre, px, py, 260, 64, 3e-3, "pretrain")
    tx, ty = make_windows(400, source, 2)
    print(f"[pretrain] test accuracy {accuracy(pre, tx, ty):.3f}")
    torch.save({"model": pre.state_dict(), "steps": 260}, path)

    target = [(0, 5), (1, 5), (2, 7), (3, 7), (4, 9), (6, 9), (8, 11), (10, 11)]
    dx, dy = make_windows(160, target, 3)
    vx, vy = make_windows(800, target, 4)
    model = DeviceClassifier(path, len(target))
    last = train(model, dx, dy, 160, 32, 2e-3, "adapt", offset=260)
    print(f"final adapt loss {last:.4f} test accuracy {accuracy(model, vx, vy):.3f}")


if __name__ == "__main__":
    main()
