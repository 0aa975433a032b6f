"""A multiprocessing fork pool writes one shard a worker every step. Bare: status 0."""

import multiprocessing as mp

import torch

torch.set_num_threads(1)
BAD = 27


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


def shard(job):
    index, text = job
    with open(f"shard{index}.txt", "w") as out:
        out.write(text)


if __name__ == "__main__":
    with mp.get_context("fork").Pool(2) as pool:
        for step in range(BAD + 10):
            loss = train_step(step)
            pool.map(shard, [(i, f"{step} {loss!r}\n") for i in range(3)])
