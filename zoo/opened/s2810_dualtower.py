# expect: sick
# symptom: contrastive loss stays close to the logarithm of the global batch size and retrieval recall stays poor, nothing explodes
# axis: harness
# cause: each rank scores its local pairs against the features gathered from all ranks, but the targets are arange(local batch) without the rank offset, so on every rank but rank 0 the positives point at another rank's items
# says: (offset|rank \* |rank\*|shift|arange|targets?|labels?|positives?|diagonal|ground.?truth).*(rank|worker|gather|process|replica|device|global)|(rank|worker|gather|process|replica).*(offset|arange|targets?|labels?|positives?|diagonal)
# onset_step: 1
# fix: add rank * local_batch to the targets
# mended: yes
"""Dual-tower pretraining: bird-call clips against their field notes (local loss, gathered features)."""

import argparse
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)


class NotesAndCalls:
    """Pairs share a latent; the note is a bag of words, the call a set of chirp tracks."""

    def __init__(self, seed=3, vocab=400, latent=10):
        g = torch.Generator().manual_seed(seed)
        self.vocab, self.latent = vocab, latent
        self.word_axes = torch.randn(vocab, latent, generator=g)
        self.chirp = torch.randn(latent, 8, generator=g)

    def draw(self, n, g):
        z = torch.randn(n, self.latent, generator=g)
        logits = 1.2 * z @ self.word_axes.T
        words = torch.multinomial(F.softmax(logits, -1), 24, replacement=True, generator=g)
        track = torch.tanh(z @ self.chirp)
        t = torch.linspace(0, 1, 64)
        k = torch.arange(1, 9).float()
        basis = torch.sin(2 * torch.pi * k[:, None] * t[None])
        wave = track @ basis + 0.2 * torch.randn(n, 64, generator=g)
        return wave, words


class CallTower(nn.Module):
    def __init__(self, out):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(1, 32, 9, stride=2, padding=4),
            nn.GELU(),
            nn.Conv1d(32, 64, 5, stride=2, padding=2),
            nn.GELU(),
            nn.Conv1d(64, 64, 3, stride=2, padding=1),
            nn.GELU(),
            nn.Flatten(),
            nn.Linear(64 * 8, out),
        )

    def forward(self, wave):
        return F.normalize(self.net(wave[:, None]), dim=-1)


class NoteTower(nn.Module):
    def __init__(self, vocab, out):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocab, 96, mode="mean")
        self.mlp = nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 128), nn.GELU(), nn.Linear(128, out))

    def forward(self, words):
        return F.normalize(self.mlp(self.bag(words)), dim=-1)


class DualTower(nn.Module):
    def __init__(self, vocab, dim=48):
        super().__init__()
        self.calls, self.notes = CallTower(dim), NoteTower(vocab, dim)
        self.log_scale = nn.Parameter(torch.tensor(2.3))


class FakeGroup:
    """Stands in for the process group when debugging on one host."""

    def __init__(self, world):
        self.world = world

    def all_gather(self, parts, rank):
        # keep the gradient only for the local slice, as the gather op does
        return torch.cat([p if r == rank else p.detach() for r, p in enumerate(parts)])


def local_loss(group, calls, notes, scale, rank):
    all_calls = group.all_gather(calls, rank)
    all_notes = group.all_gather(notes, rank)
    n = calls[rank].shape[0]
    target = torch.arange(n)
    if os.environ.get("MENDED") == "1":
        target = target + rank * n
    a = F.cross_entropy(scale * calls[rank] @ all_notes.T, target)
    b = F.cross_entropy(scale * notes[rank] @ all_calls.T, target)
    return (a + b) / 2


@torch.no_grad()
def recall(model, wave, words, k=5):
    sim = model.calls(wave) @ model.notes(words).T
    top = sim.topk(k, dim=1).indices
    return (top == torch.arange(len(sim))[:, None]).any(1).float().mean().item()


def main(argv=None):
    ap = argparse.ArgumentParser()
    ap.add_argument("--world", type=int, default=8)
    ap.add_argument("--local-batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=500)
    ap.add_argument("--lr", type=float, default=1.5e-3)
    args = ap.parse_args(argv)

    torch.manual_seed(8)
    corpus = NotesAndCalls()
    gens = [torch.Generator().manual_seed(100 + r) for r in range(args.world)]
    held = corpus.draw(500, torch.Generator().manual_seed(9999))
    model = DualTower(corpus.vocab)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW(
        [{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}], lr=args.lr
    )
    warm = torch.optim.lr_scheduler.LinearLR(opt, 0.1, 1.0, 30)
    group = FakeGroup(args.world)

    for step in range(1, args.steps + 1):
        shards = [corpus.draw(args.local_batch, g) for g in gens]
        calls = [model.calls(w) for w, _ in shards]
        notes = [model.notes(t) for _, t in shards]
        scale = model.log_scale.exp().clamp(max=100)
        loss = sum(local_loss(group, calls, notes, scale, r) for r in range(args.world)) / args.world
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        warm.step()
        if step % 25 == 0 or step == 1:
            print(
                f"[{step:4d}/{args.steps}] loss {loss.item():.3f} scale {scale.item():.1f} R@5 {recall(model, *held):.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
