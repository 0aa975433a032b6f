# expect: healthy
# symptom: ids are given in several places, which looks like a vocabulary that is built anew
# axis: none
# mended: none
import argparse
import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class GlyphBank:
    def __init__(self, n_alphabets=40, size=14):
        self.names = [f"glyph_{i:02d}" for i in range(n_alphabets)]
        g = torch.Generator().manual_seed(4)
        self.proto = {
            n: F.interpolate(torch.rand(1, 1, 5, 5, generator=g), size=size, mode="bilinear", align_corners=False)[
                0
            ].round()
            for n in self.names
        }

    def draw(self, name, k):
        base = self.proto[name].expand(k, -1, -1, -1)
        shift = [torch.roll(b, (random.randint(-1, 1), random.randint(-1, 1)), (1, 2)) for b in base]
        return torch.stack(shift) + 0.3 * torch.randn(k, *base.shape[1:])


def sample_episode(bank, names, way, shot, query):
    chosen = random.sample(names, way)
    label_of = {}
    sx, sy, qx, qy = [], [], [], []
    for name in chosen:
        label_of[name] = len(label_of)
        imgs = bank.draw(name, shot + query)
        sx.append(imgs[:shot])
        qx.append(imgs[shot:])
        sy += [label_of[name]] * shot
        qy += [label_of[name]] * query
    perm = torch.randperm(way * query)
    return torch.cat(sx), torch.tensor(sy), torch.cat(qx)[perm], torch.tensor(qy)[perm]


def conv_block(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU(), nn.MaxPool2d(2))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(conv_block(1, 16), conv_block(16, 32), nn.Flatten(), nn.Linear(32 * 9, 48))

    def forward(self, x):
        return self.body(x)


def episode_logits(enc, sx, sy, qx, way):
    zs, zq = enc(sx), enc(qx)
    protos = torch.stack([zs[sy == c].mean(0) for c in range(way)])
    return -torch.cdist(zq, protos).pow(2) / zq.size(1) ** 0.5


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--way", type=int, default=5)
    ap.add_argument("--shot", type=int, default=3)
    ap.add_argument("--query", type=int, default=8)
    ap.add_argument("--episodes", type=int, default=100)
    a = ap.parse_args()
    random.seed(0)
    torch.manual_seed(0)
    bank = GlyphBank()
    enc = Encoder()
    opt = torch.optim.Adam(enc.parameters(), lr=2e-3)
    for ep in range(1, a.episodes + 1):
        sx, sy, qx, qy = sample_episode(bank, bank.names[:30], a.way, a.shot, a.query)
        loss = F.cross_entropy(episode_logits(enc, sx, sy, qx, a.way), qy)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if ep % 20 == 0:
            with torch.no_grad():
                hits = []
                for _ in range(5):
                    sx, sy, qx, qy = sample_episode(bank, bank.names[30:], a.way, a.shot, a.query)
                    hits.append((episode_logits(enc, sx, sy, qx, a.way).argmax(1) == qy).float().mean().item())
            print(f"episode {ep} loss {loss.item():.4f} novel acc {sum(hits) / len(hits):.3f}")


if __name__ == "__main__":
    main()
