# expect: sick
# symptom: the loss falls well at first, then stalls from about step 80 at a high level; retrieval stays far below what is possible
# axis: optimizer
# cause: the exponential learning rate schedule (gamma meant per epoch) is stepped after every batch, so the rate is practically zero after some epochs
# says: (schedul\w*|exponentiallr|decay|gamma|\blr\b|learning[- ]rate).{0,140}(per[- ](batch|step|iteration)|every (batch|step|iteration|update)|each (batch|step|iteration|update)|too (fast|quick|early|soon|aggressive|rapid)|(close|near|almost|practically|effectively|decays?|decayed|falls?|drops?|down|collapse\w*|vanish\w*) .{0,30}(zero|nothing|0\b|1e-)|per epoch|inside the (batch|inner)|vanish|tiny|collaps)
# onset_step: 80
# fix: call scheduler.step() once per epoch
# mended: the schedule is stepped once per epoch
import math
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.set_num_threads(1)
torch.manual_seed(5)

LATENT, T, CH, VOCAB, WORDS, BATCH, PER_EPOCH, EPOCHS = 10, 64, 6, 96, 10, 64, 25, 20
gen = torch.Generator().manual_seed(5)
FREQ = torch.rand(LATENT, CH, generator=gen) * 0.6 + 0.05
PHASE = torch.rand(LATENT, CH, generator=gen) * 6.28
WORD_DIR = torch.randn(VOCAB, LATENT, generator=gen)


def sample_pairs(n):
    """latent activity -> wearable window (CH x T) and a bag-of-words style description"""
    z = torch.randn(n, LATENT, generator=gen)
    t = torch.arange(T).float()
    waves = torch.sin(FREQ[:, :, None] * t + PHASE[:, :, None])
    x = torch.einsum("nl,lct->nct", z, waves) / math.sqrt(LATENT)
    x = x + 0.02 * torch.randn(x.shape, generator=gen)
    words = (z @ WORD_DIR.t()).topk(WORDS, -1).indices
    return x, words


class SensorEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv1d(CH, 48, 5, 2, 2),
            nn.GELU(),
            nn.Conv1d(48, 64, 5, 2, 2),
            nn.GELU(),
            nn.Conv1d(64, 64, 5, 2, 2),
            nn.GELU(),
        )
        self.out = nn.Linear(64 * T // 8, dim)

    def forward(self, x):
        return self.out(self.conv(x).flatten(1))


class WordEncoder(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.emb = nn.EmbeddingBag(VOCAB, 96, mode="mean")
        self.mlp = nn.Sequential(nn.Linear(96, 128), nn.GELU(), nn.Linear(128, dim))

    def forward(self, w):
        return self.mlp(self.emb(w))


class DualEncoder(nn.Module):
    def __init__(self, dim=32, init=0.07):
        super().__init__()
        self.sensor, self.words = SensorEncoder(dim), WordEncoder(dim)
        self.log_scale = nn.Parameter(torch.tensor(math.log(1 / init)))

    def forward(self, x, w):
        a, b = F.normalize(self.sensor(x), dim=-1), F.normalize(self.words(w), dim=-1)
        return a @ b.t() * self.log_scale.exp().clamp(max=100.0)


model = DualEncoder()
opt = torch.optim.AdamW(model.parameters(), lr=5e-4, weight_decay=1e-3)
sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.96)
labels = torch.arange(BATCH)
val_x, val_w = sample_pairs(256)
step, t0 = 0, time.time()
for epoch in range(EPOCHS):
    for _ in range(PER_EPOCH):
        x, w = sample_pairs(BATCH)
        logits = model(x, w)
        loss = 0.5 * (F.cross_entropy(logits, labels) + F.cross_entropy(logits.t(), labels))
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if not MENDED:
            sched.step()
        if step % 10 == 0:
            acc = (logits.argmax(1) == labels).float().mean().item()
            print(f"epoch {epoch:2d} step {step:4d} loss {loss.item():.4f} batch acc {acc:.3f}")
        step += 1
    if MENDED:
        sched.step()
    if epoch % 4 == 3:
        with torch.no_grad():
            r1 = (model(val_x, val_w).argmax(1) == torch.arange(256)).float().mean().item()
        print(f"== epoch {epoch} val R@1 {r1:.3f} ({time.time() - t0:.1f}s)")
