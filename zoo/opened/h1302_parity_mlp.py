# expect: healthy
# symptom: the loss stands at ln 2 (chance) for a long time as if nothing trained, then drops suddenly to nearly zero
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(1)

N_BITS, SECRET = 40, (3, 11, 24)
WIDTH, BATCH, STEPS = 256, 128, 800


def sample(n, gen=None):
    """Random sign vectors; the label is the parity of three hidden positions."""
    x = torch.randint(0, 2, (n, N_BITS), generator=gen).float() * 2 - 1
    y = (x[:, list(SECRET)].prod(-1) > 0).long()
    return x, y


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(N_BITS, WIDTH),
            nn.ReLU(),
            nn.Linear(WIDTH, 128),
            nn.ReLU(),
            nn.Linear(128, 2),
        )

    def forward(self, x):
        return self.net(x)


class Meter:
    def __init__(self, beta=0.9):
        self.beta, self.value = beta, None

    def update(self, v):
        self.value = v if self.value is None else self.beta * self.value + (1 - self.beta) * v
        return self.value


@torch.no_grad()
def test_accuracy(model):
    gen = torch.Generator().manual_seed(99)
    x, y = sample(4000, gen)
    return (model(x).argmax(-1) == y).float().mean().item()


def position_weight(model):
    w = model.net[0].weight.detach().pow(2).mean(0)
    top = w.topk(3).indices.sort().values.tolist()
    return top, (w[list(SECRET)].mean() / w.mean()).item()


def main():
    model = MLP()
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=1e-2)
    warm = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 20))
    avg = Meter()
    for step in range(STEPS):
        x, y = sample(BATCH)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        warm.step()
        smooth = avg.update(loss.item())
        if step % 25 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} avg {smooth:.4f}")
        if step % 150 == 149:
            top, ratio = position_weight(model)
            print(f"   test acc {test_accuracy(model):.3f} strongest inputs {top} ratio {ratio:.2f}")
    print(f"final test acc {test_accuracy(model):.3f}")


if __name__ == "__main__":
    main()
