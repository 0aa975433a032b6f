# expect: healthy
# symptom: the loss leaps back up several times because weights are deliberately pruned and rewound
# axis: harness
"""Iterative magnitude pruning with rewinding on synthetic textures.

After every round the smallest surviving weights are masked out and the rest go
back to their values from an early step, then the sparser net is trained again.
"""

import copy
import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(1)
torch.manual_seed(9)


def textures(n, seed):
    g = torch.Generator().manual_seed(seed)
    y = torch.randint(0, 8, (n,), generator=g)
    yy, xx = torch.meshgrid(torch.arange(16.0), torch.arange(16.0), indexing="ij")
    angle = (y % 4)[:, None, None] * torch.pi / 4 + 0.12 * torch.randn(n, 1, 1, generator=g)
    freq = torch.where(y < 4, 0.9, 1.7)[:, None, None]
    phase = 6.28 * torch.rand(n, 1, 1, generator=g)
    img = torch.sin(freq * (xx * angle.cos() + yy * angle.sin()) + phase)
    contrast = 0.5 + torch.rand(n, 1, 1, generator=g)
    img = contrast * img + 0.9 * torch.randn(n, 16, 16, generator=g)
    return img[:, None], y


class TextureNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1 = nn.Conv2d(1, 24, 5, padding=2)
        self.c2 = nn.Conv2d(24, 32, 3, padding=1, stride=2)
        self.c3 = nn.Conv2d(32, 32, 3, padding=1, stride=2)
        self.fc = nn.Linear(32, 8)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.relu(self.c2(x))
        x = F.relu(self.c3(x))
        return self.fc(x.mean((2, 3)))


train_x, train_y = textures(4000, 1)
test_x, test_y = textures(1000, 2)
net = TextureNet()
prunable = [n for n, p in net.named_parameters() if p.dim() > 1]
masks = {n: torch.ones_like(p) for n, p in net.named_parameters() if n in prunable}
early = None


def apply_masks():
    with torch.no_grad():
        for n, p in net.named_parameters():
            if n in masks:
                p.mul_(masks[n])


def prune(fraction):
    for n, p in net.named_parameters():
        if n in masks and n != "fc.weight":
            alive = p.detach()[masks[n].bool()].abs()
            cut = alive.kthvalue(max(1, int(fraction * len(alive)))).values
            masks[n] *= (p.detach().abs() > cut).float()


@torch.no_grad()
def test_accuracy():
    return (net(test_x).argmax(1) == test_y).float().mean().item()


ROUNDS, PER_ROUND, REWIND_AT = 4, 160, 20
step = 0
for rnd in range(ROUNDS):
    opt = torch.optim.SGD(net.parameters(), lr=0.08, momentum=0.9, weight_decay=5e-4, nesterov=True)
    for k in range(1, PER_ROUND + 1):
        lr = 0.08 * min(1.0, k / 10) * (0.1 if k > 120 else 1.0)
        for group in opt.param_groups:
            group["lr"] = lr
        pick = torch.randint(0, len(train_x), (64,))
        loss = F.cross_entropy(net(train_x[pick]), train_y[pick])
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        opt.step()
        apply_masks()
        step += 1
        if rnd == 0 and k == REWIND_AT:
            early = copy.deepcopy(net.state_dict())
        if step % 20 == 0:
            print(f"round {rnd} step {step:4d} loss {loss.item():.4f} lr {lr:.3f}")
    left = sum(m.sum() for m in masks.values()) / sum(m.numel() for m in masks.values())
    print(f"== round {rnd}: {left:.0%} of weights left, test accuracy {test_accuracy():.3f}")
    if rnd < ROUNDS - 1:
        prune(0.35)
        net.load_state_dict(early)
        apply_masks()
