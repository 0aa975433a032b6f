# expect: sick
# symptom: in the second stage (from step 301) the loss stays at chance although gradients reach the head; the first stage was fine
# axis: optimizer
# cause: the classification head is replaced after the optimizer was built, so the optimizer still holds the old head and the new one is never updated
# says: (optimi[sz]er|param.?group)\w*.{0,80}(old|stale|missing|lack|not (in|includ|contain|regist|hold|have)|does ?n.t|never|without|new|replaced)|(head|param\w*|layer|weights?)\b.{0,60}(not in|missing from|never (updat|train|mov)|not (updat|train|regist|given|passed|added)|outside|unregistered|absent|do(es)? not (move|change|train)|untrained|frozen|no update).{0,40}
# onset_step: 301
# fix: register the parameters of the new head with the optimizer
# mended: opt.add_param_group is called with the new head; the second stage reaches a low loss
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(17)
torch.set_num_threads(1)

SIZE, PATCH, DIM, BATCH = 16, 4, 48, 32
STAGE1, STAGE2 = 300, 300
SHAPES, ANGLES = 3, 4


class ViT(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.patch = nn.Conv2d(1, DIM, PATCH, stride=PATCH)
        self.pos = nn.Parameter(0.02 * torch.randn(1, (SIZE // PATCH) ** 2, DIM))
        layer = nn.TransformerEncoderLayer(DIM, 4, 2 * DIM, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(DIM)
        self.head = nn.Linear(DIM, classes)

    def forward(self, x):
        h = self.patch(x).flatten(2).transpose(1, 2) + self.pos
        return self.head(self.norm(self.encoder(h)).mean(1))


def make_batch(n):
    shape = torch.randint(0, SHAPES, (n,))
    angle = torch.randint(0, ANGLES, (n,))
    th = angle.float() * torch.pi / ANGLES
    yy, xx = torch.meshgrid(torch.arange(SIZE).float(), torch.arange(SIZE).float(), indexing="ij")
    u = xx * th.cos()[:, None, None] + yy * th.sin()[:, None, None]
    freq = 0.5 + 0.4 * shape.float()
    img = torch.sin(freq[:, None, None] * u + 6.28 * torch.rand(n)[:, None, None])
    img = img + 0.3 * torch.randn(n, SIZE, SIZE)
    return img[:, None], shape * ANGLES + angle, shape + SHAPES * (angle % 2)


def run_stage(model, opt, first, steps, pick):
    for step in range(first, first + steps):
        x, fine, coarse = make_batch(BATCH)
        y = (fine, coarse)[pick]
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step == first or step % 30 == 0:
            print(f"step {step:4d} loss {loss.item():.4f}")


@torch.no_grad()
def accuracy(model, pick):
    x, fine, coarse = make_batch(600)
    return (model(x).argmax(1) == (fine, coarse)[pick]).float().mean().item()


def main():
    t0 = time.time()
    model = ViT(SHAPES * ANGLES)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    run_stage(model, opt, 1, STAGE1, 0)
    print(f"stage 1 accuracy {accuracy(model, 0):.3f}")

    for p in model.parameters():
        p.requires_grad_(False)
    model.head = nn.Linear(DIM, 2 * SHAPES)
    if MENDED:
        opt.add_param_group({"params": model.head.parameters()})
    run_stage(model, opt, STAGE1 + 1, STAGE2, 1)
    print(f"stage 2 accuracy {accuracy(model, 1):.3f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
