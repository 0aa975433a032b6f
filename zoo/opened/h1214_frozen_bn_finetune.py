# expect: healthy
# symptom: in the fine-tuning phase most parameters have no gradient, the BatchNorm layers are in eval mode while training, the optimizer holds a part of the model only, and the batch has four images
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(14)

SIZE, SRC, TGT = 20, 12, 4
shapes = torch.randn(SRC + TGT, 3, 7, 7, generator=torch.Generator().manual_seed(5))
shapes[SRC:] = 0.45 * shapes[SRC:] + 0.8 * shapes[:TGT] + 0.5 * shapes[TGT : 2 * TGT]


def images(n, classes, gen):
    y = torch.randint(0, len(classes), (n,), generator=gen)
    x = 0.7 * torch.randn(n, 3, SIZE, SIZE, generator=gen) + 0.3
    pos = torch.randint(0, SIZE - 7, (n, 2), generator=gen).tolist()
    for i, (a, b) in enumerate(pos):
        x[i, :, a : a + 7, b : b + 7] += shapes[classes[y[i]]]
    return x, y


class Stage(nn.Sequential):
    def __init__(self, i, o, s):
        super().__init__(
            nn.Conv2d(i, o, 3, s, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
        )


class Backbone(nn.Module):
    def __init__(self, c=16, frozen_stages=0, norm_eval=False):
        super().__init__()
        self.stages = nn.ModuleList([Stage(3, c, 1), Stage(c, 2 * c, 2), Stage(2 * c, 4 * c, 2)])
        self.frozen_stages, self.norm_eval = frozen_stages, norm_eval

    def forward(self, x):
        for s in self.stages:
            x = s(x)
        return x.mean((2, 3))

    def train(self, mode=True):
        super().train(mode)
        for s in self.stages[: self.frozen_stages]:
            s.eval()
            for p in s.parameters():
                p.requires_grad = False
        if mode and self.norm_eval:
            for m in self.modules():
                if isinstance(m, nn.BatchNorm2d):
                    m.eval()
        return self


class Classifier(nn.Module):
    def __init__(self, backbone, n):
        super().__init__()
        self.backbone, self.head = backbone, nn.Linear(64, n)

    def forward(self, x):
        return self.head(self.backbone(x))


@torch.no_grad()
def accuracy(model, x, y):
    model.eval()
    a = (model(x).argmax(-1) == y).float().mean().item()
    model.train()
    return a


def run(name, model, opt, sample, steps, test, step0=0):
    model.train()
    sched = torch.optim.lr_scheduler.LinearLR(opt, 1.0, 0.02, total_iters=steps)
    for step in range(step0, step0 + steps):
        x, y = sample()
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 10 == 0:
            print(f"{name} step {step} loss {loss.item():.4f}", flush=True)
    print(f"{name} test accuracy {accuracy(model, *test):.3f}", flush=True)
    return step0 + steps


def main():
    g = torch.Generator().manual_seed(0)
    src_cls, tgt_cls = torch.arange(SRC), torch.arange(SRC, SRC + TGT)

    # source task
    model = Classifier(Backbone(), SRC)
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    step = run(
        "pretrain",
        model,
        opt,
        lambda: images(32, src_cls, g),
        350,
        images(500, src_cls, torch.Generator().manual_seed(1)),
    )

    # target task: 160 labelled images, four at a time
    backbone = Backbone(frozen_stages=2, norm_eval=True)
    backbone.load_state_dict(model.backbone.state_dict())
    model = Classifier(backbone, TGT)
    model.train()
    params = [p for p in model.parameters() if p.requires_grad]
    print(f"fine-tuning {sum(p.numel() for p in params)} of {sum(p.numel() for p in model.parameters())} parameters")
    opt = torch.optim.AdamW(
        [
            {"params": [p for p in backbone.parameters() if p.requires_grad], "lr": 2e-4},
            {"params": model.head.parameters(), "lr": 3e-3},
        ],
        weight_decay=1e-3,
    )
    x, y = images(160, tgt_cls, g)

    def few():
        i = torch.randint(0, len(x), (4,), generator=g)
        return x[i], y[i]

    run("finetune", model, opt, few, 400, images(500, tgt_cls, torch.Generator().manual_seed(2)), step)


if __name__ == "__main__":
    main()
