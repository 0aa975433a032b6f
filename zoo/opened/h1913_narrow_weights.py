# expect: healthy
# symptom: resembles bfloat16 weights that swallow small updates: weights are stored in bf16 with no float32 master copy
# axis: precision
# cause: none
# says: none
# onset_step: none
# fix: none
# mended: no
import torch
import torch.nn as nn
import torch.nn.functional as F


def round_randomly(x):
    """float32 -> bfloat16, up or down at random in proportion to the distance"""
    bits = x.contiguous().view(torch.int32)
    bits = bits + torch.randint_like(bits, 0, 1 << 16)
    return (bits & -65536).view(torch.float32).to(torch.bfloat16)


class NarrowAdam(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                st = self.state[p]
                if not st:
                    st["t"] = 0
                    st["m"] = torch.zeros(p.shape)
                    st["v"] = torch.zeros(p.shape)
                st["t"] += 1
                g = p.grad.float()
                st["m"].lerp_(g, 1 - b1)
                st["v"].lerp_(g * g, 1 - b2)
                m = st["m"] / (1 - b1 ** st["t"])
                v = st["v"] / (1 - b2 ** st["t"])
                target = p.float() - group["lr"] * m / (v.sqrt() + group["eps"])
                p.copy_(round_randomly(target))


def housing(n, gen):
    x = torch.randn(n, 10, generator=gen)
    y = torch.sin(1.5 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3].abs() + 0.3 * x[:, 4]
    y = y + 0.1 * torch.randn(n, generator=gen)
    return x, (y - 0.4) / 1.4


class Regressor(nn.Module):
    def __init__(self, width=96):
        super().__init__()
        self.l1, self.l2, self.l3 = nn.Linear(10, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        # weights are narrow, arithmetic is float32
        h = x
        for i, layer in enumerate((self.l1, self.l2, self.l3)):
            h = F.linear(h, layer.weight.float(), layer.bias.float())
            if i < 2:
                h = F.silu(h)
        return h.squeeze(-1)


def main(steps=900, batch=128, lr=1.5e-3):
    torch.manual_seed(19)
    gen = torch.Generator().manual_seed(20)
    train_x, train_y = housing(12000, gen)
    val_x, val_y = housing(2000, gen)
    model = Regressor().to(torch.bfloat16)
    opt = NarrowAdam(model.parameters(), lr=lr)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, 2 * (1 - s / steps)))
    for step in range(1, steps + 1):
        i = torch.randint(len(train_x), (batch,))
        loss = F.mse_loss(model(train_x[i]), train_y[i])
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 50 == 0:
            with torch.no_grad():
                print(
                    f"step {step} loss {loss.item():.4f} val {F.mse_loss(model(val_x), val_y).item():.4f}", flush=True
                )


if __name__ == "__main__":
    main()
