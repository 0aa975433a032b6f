# expect: sick
# fault: the SimSiam projections used as targets are not detached, so both sides move and the representation may collapse
# onset_step: 1
# says: (?i)(detach|stop.?grad|carries a gradient|live.?target)
import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)


def augment(x):
    keep = (torch.rand_like(x) > 0.15).float()
    gain = 1 + 0.2 * torch.randn(x.size(0), 1)
    return x * keep * gain + 0.1 * torch.randn_like(x)


def make_data(n, dim=40, groups=10):
    g = torch.Generator().manual_seed(3)
    protos = torch.randn(groups, dim, generator=g)
    y = torch.randint(0, groups, (n,), generator=g)
    return protos[y] + 0.5 * torch.randn(n, dim, generator=g), y


class Siamese(nn.Module):
    def __init__(self, dim=40, width=128, out=64):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(dim, width),
            nn.BatchNorm1d(width),
            nn.ReLU(inplace=True),
            nn.Linear(width, out),
        )
        self.predictor = nn.Sequential(
            nn.Linear(out, 32), nn.BatchNorm1d(32), nn.ReLU(inplace=True), nn.Linear(32, out)
        )

    def forward(self, x1, x2):
        z1, z2 = self.encoder(x1), self.encoder(x2)
        p1, p2 = self.predictor(z1), self.predictor(z2)
        return p1, p2, z1, z2


def similarity(p, z):
    return -F.cosine_similarity(p, z, dim=-1).mean()


@torch.no_grad()
def knn(model, x, y, cut):
    model.eval()
    h = F.normalize(model.encoder(x), dim=1)
    near = (h[cut:] @ h[:cut].T).topk(5, dim=1).indices
    vote = y[:cut][near].mode(dim=1).values
    model.train()
    return (vote == y[cut:]).float().mean().item()


def main():
    torch.manual_seed(3)
    x, y = make_data(2000)
    model = Siamese()
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 280)
    for step in range(1, 281):
        xb = x[torch.randint(0, 1600, (128,))]
        p1, p2, z1, z2 = model(augment(xb), augment(xb))
        loss = 0.5 * similarity(p1, z2) + 0.5 * similarity(p2, z1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 40 == 0:
            spread = F.normalize(z1.detach(), dim=1).std(0).mean().item()
            print(f"step {step} loss {loss.item():.4f} spread {spread:.4f} knn {knn(model, x, y, 1600):.3f}")


if __name__ == "__main__":
    main()
