# expect: healthy
# symptom: most parameters get no gradient and never change (resembles a model frozen by mistake)
# axis: model
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(9)

SIZE = 20


def draw(n, seed, task):
    """Small pictures with one filled figure; task 'figure' asks which one, task 'corner' where it lies."""
    g = torch.Generator().manual_seed(seed)
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    c = torch.rand(n, 2, generator=g) * 10 + 5
    kind = torch.randint(0, 3, (n,), generator=g)
    dx, dy = xx - c[:, 0].view(-1, 1, 1), yy - c[:, 1].view(-1, 1, 1)
    disc = (dx**2 + dy**2 < 16).float()
    bar = ((dx.abs() < 1.5) & (dy.abs() < 5)).float()
    beam = ((dx.abs() < 5) & (dy.abs() < 1.5)).float()
    img = torch.stack([disc, bar, beam], 1)[torch.arange(n), kind]
    img = img + 0.35 * torch.randn(n, SIZE, SIZE, generator=g)
    label = kind if task == "figure" else (c[:, 0] > 10).long() * 2 + (c[:, 1] > 10).long()
    return img.unsqueeze(1), label


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.BatchNorm2d(16)
        self.c2, self.b2 = nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 25, 96)

    def forward(self, x):
        x = F.relu(self.b1(self.c1(x)))
        x = F.relu(self.b2(self.c2(x)))
        return F.relu(self.fc(x.flatten(1)))


def accuracy(encoder, head, x, y):
    was = encoder.training, head.training
    encoder.eval(), head.eval()
    with torch.no_grad():
        acc = (head(encoder(x)).argmax(1) == y).float().mean().item()
    encoder.train(was[0]), head.train(was[1])
    return acc


def fit(encoder, head, data, params, steps, lr, tag, seed):
    x, y = data
    opt = torch.optim.AdamW(params, lr=lr, weight_decay=1e-4)
    g = torch.Generator().manual_seed(seed)
    for step in range(steps):
        idx = torch.randint(0, len(y), (64,), generator=g)
        loss = F.cross_entropy(head(encoder(x[idx])), y[idx])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"{tag} step {step:4d} loss {loss.item():.4f}")
    return loss.item()


def main():
    encoder = Encoder()
    figure_head = nn.Linear(96, 3)
    fit(
        encoder,
        figure_head,
        draw(2000, 0, "figure"),
        list(encoder.parameters()) + list(figure_head.parameters()),
        120,
        2e-3,
        "pretrain",
        seed=1,
    )
    fx, fy = draw(500, 10, "figure")
    print(f"pretrained figure acc {accuracy(encoder, figure_head, fx, fy):.3f}")

    encoder.requires_grad_(False)
    encoder.eval()
    corner_head = nn.Sequential(nn.Linear(96, 48), nn.ReLU(), nn.Linear(48, 4))
    train, (vx, vy) = draw(2000, 2, "corner"), draw(600, 3, "corner")
    print(f"corner acc before {accuracy(encoder, corner_head, vx, vy):.3f}")
    loss = fit(encoder, corner_head, train, corner_head.parameters(), 280, 3e-3, "probe", seed=4)
    print(
        f"final loss {loss:.4f} corner val_acc {accuracy(encoder, corner_head, vx, vy):.3f} "
        f"figure acc still {accuracy(encoder, figure_head, fx, fy):.3f}"
    )


if __name__ == "__main__":
    main()
