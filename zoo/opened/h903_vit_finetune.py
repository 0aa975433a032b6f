# expect: healthy
# symptom: most parameters have no gradient for the first half of the run and the loss sits on a plateau, then a kink: it looks like a model that is frozen by mistake
# axis: model
# cause: healthy: linear probing first with the pretrained backbone frozen on purpose, then unfreezing it with its own small learning rate, and the accuracy rises in both phases
# says: none
# onset_step: none
# fix: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(13)
SIZE, PATCH, FACTORS = 16, 4, 4


def make_split(n, task, gen):
    """Images carry four hidden factors (which of two strokes sits in each quadrant)."""
    bits = torch.randint(0, 2, (n, FACTORS), generator=gen)
    img = 0.6 * torch.randn(n, 1, SIZE, SIZE, generator=gen)
    half = SIZE // 2
    for q in range(FACTORS):
        r, c = (q // 2) * half, (q % 2) * half
        off = torch.randint(1, 6, (n,), generator=gen)
        for i in range(n):
            o = int(off[i])
            if bits[i, q]:
                img[i, 0, r + o : r + o + 2, c : c + half] += 1.4
            else:
                img[i, 0, r : r + half, c + o : c + o + 2] += 1.4
    if task == "pretrain":
        return img, bits.float()
    return img, (bits[:, 0] * 2 + (bits[:, 1] ^ bits[:, 2])).long()


class ViT(nn.Module):
    def __init__(self, dim=48, depth=3, heads=4):
        super().__init__()
        self.patch = nn.Conv2d(1, dim, PATCH, PATCH)
        self.cls = nn.Parameter(torch.zeros(1, 1, dim))
        self.pos = nn.Parameter(0.02 * torch.randn(1, (SIZE // PATCH) ** 2 + 1, dim))
        layer = nn.TransformerEncoderLayer(
            dim, heads, 2 * dim, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(len(h), -1, -1), h], 1) + self.pos
        return self.norm(self.encoder(h)[:, 0])


class Classifier(nn.Module):
    def __init__(self, backbone, dim, outputs):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(dim, outputs)

    def forward(self, x):
        return self.head(self.backbone(x))


def batches(x, y, size, steps):
    for _ in range(steps):
        i = torch.randint(0, len(x), (size,))
        yield x[i], y[i]


def set_trainable(module, flag):
    for p in module.parameters():
        p.requires_grad_(flag)


@torch.no_grad()
def accuracy(model, x, y):
    return (model(x).argmax(1) == y).float().mean().item()


def main():
    gen = torch.Generator().manual_seed(3)
    backbone = ViT()

    # stage 0: a quick pretraining on the factors, in place of a downloaded checkpoint
    x, y = make_split(1500, "pretrain", gen)
    pre = Classifier(backbone, 48, FACTORS)
    opt = torch.optim.AdamW(pre.parameters(), lr=2e-3, weight_decay=0.01)
    for step, (xb, yb) in enumerate(batches(x, y, 32, 300), 1):
        loss = F.binary_cross_entropy_with_logits(pre(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 50 == 0:
            print(f"pretrain {step} loss {loss.item():.4f}")

    # stage 1: linear probe
    x, y = make_split(1200, "target", gen)
    xv, yv = make_split(300, "target", gen)
    model = Classifier(backbone, 48, 4)
    set_trainable(model.backbone, False)
    opt = torch.optim.AdamW(model.head.parameters(), lr=1e-2, weight_decay=0.0)
    for step, (xb, yb) in enumerate(batches(x, y, 32, 150), 1):
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 25 == 0:
            print(f"probe {step} loss {loss.item():.4f}")
    print(f"after probe: val accuracy {accuracy(model, xv, yv):.3f}")

    # stage 2: everything, backbone at a smaller rate
    set_trainable(model.backbone, True)
    opt.add_param_group({"params": list(model.backbone.parameters()), "lr": 7e-4, "weight_decay": 0.01})
    for step, (xb, yb) in enumerate(batches(x, y, 32, 250), 1):
        loss = F.cross_entropy(model(xb), yb)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        if step % 25 == 0:
            print(f"finetune {step} loss {loss.item():.4f}")
    print(f"after finetune: val accuracy {accuracy(model, xv, yv):.3f}")


if __name__ == "__main__":
    main()
