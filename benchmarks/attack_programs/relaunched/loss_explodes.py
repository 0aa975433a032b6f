"""No NaN in the data: the rate of learning jumps and the loss explodes; saves best and last. Bare: status 0."""

import torch

torch.set_num_threads(1)
BAD = 34


def batch(step):
    """Make one batch; the one of step BAD holds a NaN."""
    gen = torch.Generator().manual_seed(step)
    x, y = torch.randn(8, 4, generator=gen), torch.randn(8, 1, generator=gen)
    if step == BAD:
        x[3, 2] = float("nan")
    return x, y


def train_step(step):
    """Take one step and give its loss."""
    x, y = batch(step)
    opt.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    opt.step()
    return loss.item()


torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)


for step in range(60):
    opt.param_groups[0]["lr"] = 0.01 if step < BAD else 50.0
    x, y = batch(step + 1000)
    loss = ((model(x) - y) ** 2).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    torch.save({"step": step, "loss": loss.item(), "model": model.state_dict()}, "last.pt")
    with open("losses.txt", "a" if step else "w") as out:
        out.write(f"{loss.item()!r}\n")
