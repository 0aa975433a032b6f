# expect: sick
# symptom: the contrastive loss stays above 1 and cannot come below 0.69 even for a perfect embedding; the same data give 0.4 elsewhere
# axis: loss
# cause: the similarity of each row with itself is among the candidates of the softmax (the diagonal is not masked), so the best candidate is always the row itself and half of the probability is lost to it
# says: diagonal|itself|self.?(similarity|pair|match|contrast)|own (row|sample|similarity|embedding)|mask
# onset_step: 0
# fix: fill the diagonal of the similarity matrix with -inf
# mended: the diagonal is masked
import os
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(35)
MENDED = os.environ.get("MENDED") == "1"
SPEAKER, NOISE, FRAMES = 12, 36, 48


class Utterances:
    """Two cuts of one speaker share the voice and differ in channel and words."""

    def __init__(self):
        self.lift = torch.randn(SPEAKER, FRAMES) / SPEAKER**0.5
        self.channel = torch.randn(NOISE, FRAMES) / NOISE**0.5

    def views(self, n):
        voice = torch.randn(n, SPEAKER)
        cut = lambda: voice @ self.lift + 1.2 * torch.randn(n, NOISE) @ self.channel
        return cut(), cut()


class Embedder(nn.Module):
    def __init__(self, out=24):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(FRAMES, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, out))

    def forward(self, x):
        return F.normalize(self.net(x), dim=-1)


def nt_xent(a, b, temperature=0.1):
    n = len(a)
    z = torch.cat([a, b])
    sim = z @ z.T / temperature
    if MENDED:
        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))
    target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return F.cross_entropy(sim, target)


@torch.no_grad()
def top1(model, data, n=200):
    a, b = data.views(n)
    hit = (model(a) @ model(b).T).argmax(1) == torch.arange(n)
    return hit.float().mean().item()


data, model = Utterances(), Embedder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(1, 301):
    x1, x2 = data.views(64)
    loss = nt_xent(model(x1), model(x2))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 0:
        print(f"step {step} loss {loss.item():.4f} top-1 of 200 {top1(model, data):.3f}")
