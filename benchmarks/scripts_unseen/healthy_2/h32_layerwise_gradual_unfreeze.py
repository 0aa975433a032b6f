# expect: healthy
# fault: none
# note: pretrained net fine-tuned with layer-wise rates and gradual unfreezing from the top (ULMFiT).
import torch
from torch import nn

torch.manual_seed(32)
W1, W2 = torch.randn(16, 5), torch.randn(5, 4)
body = nn.ModuleList([nn.Linear(16, 64), nn.Linear(64, 64)])


def run(head, x):
    for l in body:
        x = torch.relu(l(x))
    return head(x)


h1 = nn.Linear(64, 5)
opt = torch.optim.Adam([*body.parameters(), *h1.parameters()], lr=3e-3)
for s in range(100):
    x = torch.randn(64, 16)
    l = nn.functional.cross_entropy(run(h1, x), (x @ W1).argmax(1))
    opt.zero_grad()
    l.backward()
    opt.step()
    if s % 20 == 0:
        print("pre", s, round(l.item(), 3))

h2 = nn.Linear(64, 4)
groups = [h2, body[1], body[0]]
for m in groups[1:]:
    m.requires_grad_(False)
opt = torch.optim.AdamW([dict(params=list(m.parameters()), lr=4e-3 * 0.4**k) for k, m in enumerate(groups)])
for s in range(150):
    if s in (40, 80):
        groups[s // 40].requires_grad_(True)
        print("unfreeze", s // 40)
    x = torch.randn(64, 16)
    l = nn.functional.cross_entropy(run(h2, x), (x @ W1 @ W2).argmax(1))
    opt.zero_grad()
    l.backward()
    opt.step()
    if s % 20 == 0:
        print("ft", s, round(l.item(), 3))
