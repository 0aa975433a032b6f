# expect: sick
# symptom: the self-supervised loss races to -1, its best value, within a few dozen steps, but the embeddings are nearly all the same (std about 0) and kNN accuracy is poor
# axis: model
# cause: the target branch of SimSiam has no stop-gradient (z is not detached), so the network collapses to a constant embedding
# says: (stop[ -_]?grad\w*|(not|missing|no|without|never|n't|lacks?|forg\w+).{0,30}detach\w*|(representation\w*|embedding\w*|feature\w*|encoder|network|model|output\w*|projection\w*|siamese|simsiam|training).{0,40}collaps\w*|collaps\w*.{0,60}(representation|embedding|constant|feature|trivial|output)|(target|both) branch\w*.{0,40}grad\w*|gradient\w*.{0,40}(target|both) branch|(embedding|representation|output|feature)s?.{0,30}(constant|identical|the same (for|vector)))
# onset_step: 1
# fix: detach z in the loss (stop-gradient on the target branch)
# mended: z.detach() is used in the negative cosine similarity
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
MENDED = os.environ.get("MENDED") == "1"
SIZE, PATCH, CLASSES = 16, 4, 5


def make_images(n, gen):
    proto_gen = torch.Generator().manual_seed(77)
    proto = F.interpolate(torch.randn(CLASSES, 3, 4, 4, generator=proto_gen), size=SIZE, mode="bilinear")
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    x = proto[y] * (0.7 + 0.6 * torch.rand(n, 1, 1, 1, generator=gen))
    return x + 1.5 * torch.randn(x.shape, generator=gen), y


def augment(x):
    b = len(x)
    x = x * (0.7 + 0.6 * torch.rand(b, 1, 1, 1)) + 0.3 * torch.randn(b, 3, 1, 1)
    dy, dx = torch.randint(-2, 3, (2,)).tolist()
    x = torch.roll(x, (dy, dx), dims=(2, 3))
    keep = (torch.rand(b, 1, SIZE // PATCH, SIZE // PATCH) > 0.2).float()
    x = x * F.interpolate(keep, scale_factor=PATCH)
    return x + 0.3 * torch.randn_like(x)


class TinyViT(nn.Module):
    def __init__(self, dim=48, depth=2, heads=4):
        super().__init__()
        self.patch = nn.Conv2d(3, dim, PATCH, PATCH)
        self.pos = nn.Parameter(torch.randn(1, (SIZE // PATCH) ** 2, dim) * 0.02)
        layer = nn.TransformerEncoderLayer(dim, heads, 2 * dim, dropout=0.0, batch_first=True, norm_first=True)
        self.blocks = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.norm(self.blocks(h)).mean(1)


class SimSiam(nn.Module):
    def __init__(self, dim=48, proj=64, hidden=32):
        super().__init__()
        self.backbone = TinyViT(dim)
        self.projector = nn.Sequential(nn.Linear(dim, proj), nn.ReLU(), nn.Linear(proj, proj))
        self.predictor = nn.Sequential(
            nn.Linear(proj, hidden, bias=False), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, proj)
        )

    def forward(self, x1, x2):
        z1, z2 = self.projector(self.backbone(x1)), self.projector(self.backbone(x2))
        return self.predictor(z1), self.predictor(z2), z1, z2


def negative_cosine(p, z):
    if MENDED:
        z = z.detach()
    return -F.cosine_similarity(p, z, dim=-1).mean()


@torch.no_grad()
def knn_accuracy(model, bank, bank_y, query, query_y, k=9):
    model.eval()
    a, b = (F.normalize(model.projector(model.backbone(t)), dim=-1) for t in (bank, query))
    votes = bank_y[(b @ a.T).topk(k).indices]
    acc = (votes.mode(1).values == query_y).float().mean().item()
    model.train()
    return acc, a.std(0).mean().item() * a.shape[1] ** 0.5


def main():
    torch.manual_seed(2)
    gen = torch.Generator().manual_seed(31)
    images, labels = make_images(1500, gen)
    query, query_y = make_images(300, gen)
    model = SimSiam()
    steps, batch = 300, 64
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    sched = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    for step in range(1, steps + 1):
        x = images[torch.randint(0, len(images), (batch,))]
        p1, p2, z1, z2 = model(augment(x), augment(x))
        loss = 0.5 * (negative_cosine(p1, z2) + negative_cosine(p2, z1))
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f} lr {sched.get_last_lr()[0]:.4f}")
        if step % 100 == 0:
            acc, std = knn_accuracy(model, images, labels, query, query_y)
            print(f"   kNN accuracy {acc:.3f}, normalised embedding std {std:.3f}")


if __name__ == "__main__":
    main()
