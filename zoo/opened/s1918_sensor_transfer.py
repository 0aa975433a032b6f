# expect: sick
# symptom: the loss settles on a plateau with the frozen body, and nothing improves after the body is unfrozen
# axis: optimizer
# cause: the optimizer is built from the parameters that require gradients at the start (the head), and the backbone that is unfrozen at epoch 4 is never added to it, so it is never updated
# says: (optimi[sz]er|param(eter)?[-_ ]?groups?|adam\w*)[^.]*(never|not|only|missing|without|exclud|omit|lack|before|head|unfr|backbone|body)|(unfr|thaw|backbone|body|frozen)[^.]*(optimi[sz]er|param(eter)?[-_ ]?group|never (updated|trained|added|change|move)|not (updated|trained|added))
# onset_step: 160
# fix: add the unfrozen backbone to the optimizer with add_param_group (or rebuild the optimizer) at the unfreezing epoch
# mended: yes
import os
from dataclasses import dataclass

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

MENDED = os.environ.get("MENDED") == "1"


@dataclass
class Settings:
    channels: int = 40
    features: int = 48
    classes: int = 5
    batch: int = 64
    epochs: int = 14
    unfreeze_at: int = 4
    head_lr: float = 3e-3
    body_lr: float = 1e-3


def readings(n, cfg, gen, mix):
    """Channels driven by a few latent factors; the fault class depends on their products."""
    f = torch.randn(n, 6, generator=gen)
    x = f @ mix + 0.3 * torch.randn(n, cfg.channels, generator=gen)
    score = torch.stack(
        [
            2 * f[:, 0] * f[:, 1],
            2 * f[:, 2] * f[:, 3],
            f[:, 4] ** 2 - 1 + 0.5 * f[:, 5],
            -2 * f[:, 0] * f[:, 2],
            1.5 * (f[:, 5].abs() - 0.8) * f[:, 1].sign(),
        ],
        1,
    )
    return x, score.argmax(1)


def backbone_from_archive(cfg, x_old):
    """Body distilled from the archive of the previous plant: principal axes, then a mixing layer."""
    net = nn.Sequential(
        nn.Linear(cfg.channels, cfg.features),
        nn.GELU(),
        nn.Linear(cfg.features, cfg.features),
        nn.GELU(),
    )
    _, s, v = torch.linalg.svd(x_old - x_old.mean(0), full_matrices=False)
    with torch.no_grad():
        net[0].weight.mul_(0.1)
        net[0].weight[:6] = v[:6] / (s[:6, None] / len(x_old) ** 0.5)
        nn.init.orthogonal_(net[2].weight)
    return net


class Classifier(nn.Module):
    def __init__(self, body, cfg):
        super().__init__()
        self.body = body
        self.head = nn.Linear(cfg.features, cfg.classes)

    def forward(self, x):
        return self.head(self.body(x))

    def freeze_body(self, frozen=True):
        for p in self.body.parameters():
            p.requires_grad = not frozen


def make_optimizer(model, cfg):
    live = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.AdamW(live, lr=cfg.head_lr, weight_decay=1e-2)


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    cfg = Settings()
    torch.manual_seed(40)
    gen = torch.Generator().manual_seed(41)
    mix = torch.randn(6, cfg.channels, generator=gen)
    old_x, _ = readings(2000, cfg, gen, mix + 0.5 * torch.randn(6, cfg.channels, generator=gen))
    train_x, train_y = readings(2560, cfg, gen, mix)
    val_x, val_y = readings(1500, cfg, gen, mix)
    loader = DataLoader(TensorDataset(train_x, train_y), cfg.batch, shuffle=True)

    model = Classifier(backbone_from_archive(cfg, old_x), cfg)
    model.freeze_body()
    opt = make_optimizer(model, cfg)
    step = 0
    for epoch in range(cfg.epochs):
        if epoch == cfg.unfreeze_at:
            model.freeze_body(False)
            if MENDED:
                opt.add_param_group({"params": list(model.body.parameters()), "lr": cfg.body_lr})
            print("body unfrozen")
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            opt.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} loss {loss.item():.4f}", flush=True)
        print(f"epoch {epoch} val acc {accuracy(model, val_x, val_y):.3f}", flush=True)


if __name__ == "__main__":
    main()
