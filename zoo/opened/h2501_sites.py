# expect: healthy
# symptom: the adversary's loss rises during the run up to ln 4 and stays there, as if the adversary had died
# axis: loss
"""Blood-panel classifier whose embedding must not tell the hospital: adversarial confusion loss, four hospitals."""

import math

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(9)
FEATURES, SITES, CLASSES = 32, 4, 3
BATCH, STEPS, START, INNER = 512, 600, 120, 3


class Cohort:
    def __init__(self):
        g = torch.Generator().manual_seed(2)
        self.health = torch.randn(4, FEATURES, generator=g) / 2
        self.device = torch.randn(SITES, FEATURES, generator=g) * 0.7
        self.g = torch.Generator().manual_seed(3)

    def draw(self, n):
        z = torch.randn(n, 4, generator=self.g)
        score = z[:, 0] + 0.8 * z[:, 1] * z[:, 2]
        y = (score > -0.5).long() + (score > 0.7).long()
        site = torch.randint(SITES, (n,), generator=self.g)
        x = z @ self.health + self.device[site] + 0.1 * torch.randn(n, FEATURES, generator=self.g)
        return x, y, site


def mlp(*sizes, norm=False):
    layers = []
    for a, b in zip(sizes[:-2], sizes[1:-1]):
        layers += [nn.Linear(a, b)] + ([nn.LayerNorm(b)] if norm else []) + [nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(sizes[-2], sizes[-1]))


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = mlp(FEATURES, 192, 192, 12, norm=True)
        self.norm = nn.LayerNorm(12, elementwise_affine=False)

    def forward(self, x):
        return self.norm(self.body(x))


cohort = Cohort()
train = cohort.draw(40_000)
test_x, test_y, test_site = cohort.draw(4000)
embed, diagnose, adversary = Embedder(), mlp(12, 64, CLASSES), mlp(12, 96, 96, SITES)
main_opt = torch.optim.AdamW([*embed.parameters(), *diagnose.parameters()], lr=1e-3)
adv_opt = torch.optim.Adam(adversary.parameters(), lr=2e-3, betas=(0.5, 0.99))


def minibatch():
    i = torch.randint(len(train[0]), (BATCH,))
    return tuple(col[i] for col in train)


@torch.no_grad()
def report(step):
    h = embed(test_x)
    acc = (diagnose(h).argmax(1) == test_y).float().mean().item()
    leak = (adversary(h).argmax(1) == test_site).float().mean().item()
    print(f"  test @ {step}: diagnosis accuracy {acc:.3f}, hospital guessed {leak:.3f}", flush=True)


for step in range(1, STEPS + 1):
    for _ in range(INNER):
        x, _, site = minibatch()
        with torch.no_grad():
            h = embed(x)
        adv_loss = F.cross_entropy(adversary(h), site)
        adv_opt.zero_grad()
        adv_loss.backward()
        adv_opt.step()

    x, y, _ = minibatch()
    h = embed(x)
    label_loss = F.cross_entropy(diagnose(h), y)
    weight = 0.6 * min(1.0, max(0.0, (step - START) / 200))
    confusion = -F.log_softmax(adversary(h), dim=1).mean() - math.log(SITES)
    loss = label_loss + weight * confusion
    main_opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(embed.parameters(), 1.0)
    main_opt.step()

    if step % 30 == 0:
        print(
            f"step {step:3d} diagnosis {label_loss.item():.3f} confusion {confusion.item():.3f} "
            f"adversary {adv_loss.item():.3f} weight {weight:.2f}",
            flush=True,
        )
    if step % 150 == 0:
        report(step)
