# expect: healthy
# symptom: resembles a frozen or dead network: most parameters have no gradient and the trunk stays in eval mode
# axis: model
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(3)
SIZE = 24


def draw(n, kinds, seed):
    """Grey images of simple shapes; kinds lists the shapes that may occur."""
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    label = torch.randint(len(kinds), (n,), generator=g)
    cx, cy = (torch.rand(n, 1, 1, generator=g) * 8 + 8 for _ in range(2))
    r = torch.rand(n, 1, 1, generator=g) * 3 + 4
    dx, dy = xx - cx, yy - cy
    rad = (dx**2 + dy**2).sqrt()
    bank = {
        "disc": rad < r,
        "ring": (rad < r) & (rad > 0.6 * r),
        "box": torch.maximum(dx.abs(), dy.abs()) < 0.85 * r,
        "cross": (torch.minimum(dx.abs(), dy.abs()) < 1.3) & (torch.maximum(dx.abs(), dy.abs()) < r),
        "frame": (torch.maximum(dx.abs(), dy.abs()) < r) & (torch.maximum(dx.abs(), dy.abs()) > 0.6 * r),
        "bars": (rad < r) & ((xx // 2) % 2 == 0).expand(n, -1, -1),
    }
    stack = torch.stack([bank[k] for k in kinds]).float()
    img = stack[label, torch.arange(n)] + 0.35 * torch.randn(n, SIZE, SIZE, generator=g)
    return img.unsqueeze(1), label


class Trunk(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [1, 12, 24, 32]
        self.stages = nn.ModuleList(
            nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(), nn.MaxPool2d(2))
            for a, b in zip(widths, widths[1:])
        )

    def forward(self, x):
        for stage in self.stages:
            x = stage(x)
        return x.mean((2, 3))


def fit(step_fn, params, lr, images, labels, epochs, tag):
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-3)
    step = 0
    for _ in range(epochs):
        for idx in torch.randperm(len(images)).split(32):
            loss = F.cross_entropy(step_fn(images[idx]), labels[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step % 25 == 0:
                print(f"{tag} step {step:3d} loss {loss.item():.4f}")
            step += 1


def main():
    base_x, base_y = draw(1600, ["disc", "ring", "box", "cross"], seed=1)
    trunk, base_head = Trunk(), nn.Linear(32, 4)
    params = list(trunk.parameters()) + list(base_head.parameters())
    fit(lambda x: base_head(trunk(x)), params, 2e-3, base_x, base_y, 4, "pretrain")

    trunk.requires_grad_(False)
    trunk.eval()
    head = nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 3))
    x, y = draw(960, ["disc", "frame", "bars"], seed=2)
    fit(lambda im: head(trunk(im)), head.parameters(), 1e-2, x, y, 7, "probe")

    tx, ty = draw(600, ["disc", "frame", "bars"], seed=3)
    with torch.no_grad():
        acc = (head(trunk(tx)).argmax(-1) == ty).float().mean().item()
    print(f"probe test accuracy {acc:.3f}")


if __name__ == "__main__":
    main()
