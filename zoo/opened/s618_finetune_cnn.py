# expect: sick
# symptom: after the backbone is unfrozen the fine-tuned network gains nothing; accuracy stays where the linear probe left it
# axis: optimizer
# cause: the fine-tuning optimizer was built from the parameters that required gradients at that time (the head), so the backbone unfrozen later gets gradients but is never updated (the fault acts from fine-tuning step 151, which is step 351 when the 200 pretraining steps are counted)
# says: (in|by|part of) no optimi[sz]er|not in (the|any) optimi[sz]er|(unfroze|unfreez|un-?frozen|thaw|backbone|trunk|encoder|stem|conv\w*|features?).{0,140}(not (in|added|passed|part|known|registered|among|handed|given|held|covered|updated|trained|being)|never (added|updated|trained|reach|passed|given|move|change)|missing (from|in)|absent from|left out|omitted|do(es)? not (move|change|train|update)|outside|without (a )?param.?group|no param.?group|add_param_group|stay(s|ed)? (frozen|fixed|unchanged))|optimi[sz]er.{0,120}(only|just|lacks|misses|missing|does not (hold|have|contain|include|know|see|cover)|without|never (saw|got|given)|before).{0,80}(head|backbone|unfroze|unfreez|unfrozen|param|conv)|(grad\w*).{0,60}(but|yet).{0,60}(not|never).{0,20}(updat|in the optimi[sz]er|step)|add_param_group
# onset_step: 351
# fix: add the backbone's parameters to the optimizer when unfreezing (opt.add_param_group)
# mended: with MENDED=1 unfreeze() also calls opt.add_param_group for the backbone
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(21)
MENDED = os.environ.get("MENDED") == "1"
S = 20


def grid():
    r = torch.arange(S).float()
    return torch.meshgrid(r, r, indexing="ij")


def shapes_batch(n, gen):
    """Source task: which of four silhouettes is it?"""
    yy, xx = grid()
    cy = torch.randint(7, 13, (n, 1, 1), generator=gen)
    cx = torch.randint(7, 13, (n, 1, 1), generator=gen)
    r = torch.randint(4, 7, (n, 1, 1), generator=gen).float()
    y = torch.randint(0, 4, (n,), generator=gen)
    dy, dx = (yy - cy).abs(), (xx - cx).abs()
    forms = torch.stack(
        [
            dy**2 + dx**2 < r**2,
            torch.maximum(dy, dx) < r * 0.9,
            dy + dx < r * 1.2,
            (torch.minimum(dy, dx) < 1.5) & (torch.maximum(dy, dx) < r),
        ],
        1,
    )
    img = forms[torch.arange(n), y].float()
    return (img + 0.2 * torch.randn(n, S, S, generator=gen))[:, None], y


def fabric_batch(n, gen):
    """Target task: six weaves, told apart by the direction and the pitch of a faint stripe."""
    yy, xx = grid()
    y = torch.randint(0, 6, (n,), generator=gen)
    ang = (y % 3).float() * (torch.pi / 3)
    freq = torch.where(y < 3, 1.3, 1.9)
    phase = torch.rand(n, generator=gen) * 6.283
    arg = (xx * ang.cos()[:, None, None] + yy * ang.sin()[:, None, None]) * freq[:, None, None]
    img = 0.45 * torch.sin(arg + phase[:, None, None])
    return (img + 0.5 * torch.randn(n, S, S, generator=gen))[:, None], y


class Net(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(1, 12, 5, padding=2),
            nn.GroupNorm(3, 12),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(12, 24, 3, padding=1),
            nn.GroupNorm(4, 24),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(24, 24, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        self.head = nn.Linear(24, classes)

    def forward(self, x):
        return self.head(self.backbone(x))


@torch.no_grad()
def accuracy(model, batch_fn, seed=77):
    x, y = batch_fn(1000, torch.Generator().manual_seed(seed))
    return (model(x).argmax(1) == y).float().mean().item()


def train(model, batch_fn, opt, steps, gen, tag):
    for step in range(1, steps + 1):
        x, y = batch_fn(64, gen)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"{tag} step {step} loss {loss.item():.4f}", flush=True)
    print(f"{tag} accuracy {accuracy(model, batch_fn):.3f}", flush=True)


def unfreeze(model, opt, lr):
    for p in model.backbone.parameters():
        p.requires_grad_(True)
    for group in opt.param_groups:
        group["lr"] = lr
    if MENDED:
        opt.add_param_group({"params": list(model.backbone.parameters()), "lr": lr})


def main():
    gen = torch.Generator().manual_seed(1)
    model = Net(4)
    train(model, shapes_batch, torch.optim.Adam(model.parameters(), lr=3e-3), 200, gen, "pretrain")

    model.head = nn.Linear(24, 6)
    for p in model.backbone.parameters():
        p.requires_grad_(False)
    opt = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    train(model, fabric_batch, opt, 150, gen, "head")

    unfreeze(model, opt, lr=2e-3)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"backbone unfrozen, {trainable} trainable parameters")
    train(model, fabric_batch, opt, 350, gen, "finetune")


if __name__ == "__main__":
    main()
