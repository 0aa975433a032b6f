# expect: healthy
# symptom: resembles a temperature that collapses: the learned logit scale grows in every step, the logits reach dozens
# note: the scale is capped at 100 as published; loss falls and recall rises
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(242)
V, T, B = 80, 10, 32
gen = torch.Generator().manual_seed(42)
table = torch.randn(V, 24, generator=gen)


def draw(n):
    ids = torch.randint(0, V, (n, T), generator=gen)
    return ids, table[ids].mean(1) * 3 + 0.3 * torch.randn(n, 24, generator=gen)


class Clip(nn.Module):
    def __init__(self, d=32):
        super().__init__()
        self.words = nn.Embedding(V, d)
        self.text = nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d))
        self.image = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, d))
        self.scale = nn.Parameter(torch.tensor(2.66))

    def forward(self, ids, img):
        a = F.normalize(self.text(self.words(ids).mean(1)), dim=-1)
        b = F.normalize(self.image(img), dim=-1)
        return (a @ b.t()) * self.scale.exp().clamp(max=100)


net = Clip()
opt = torch.optim.Adam(net.parameters(), lr=3e-3)
hid, himg = draw(128)
for step in range(1, 301):
    ids, img = draw(B)
    logits = net(ids, img)
    want = torch.arange(B)
    loss = (F.cross_entropy(logits, want) + F.cross_entropy(logits.t(), want)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 20 == 0:
        with torch.no_grad():
            recall = (net(hid, himg).argmax(1) == torch.arange(128)).float().mean()
        print(f"step {step} loss {loss.item():.4f} scale {net.scale.exp().item():.1f} recall@1 {recall.item():.3f}")
