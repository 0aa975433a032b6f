# expect: healthy
# fault: the same batch for ever
# note: the usual sanity check, said in the flag --overfit-one-batch: 16 samples repeated until the loss is 0.
import argparse
import torch
from torch import nn

torch.set_num_threads(1)


def get_args():
    ap = argparse.ArgumentParser()
    ap.add_argument("--overfit-one-batch", action="store_true", default=True)
    ap.add_argument("--steps", type=int, default=120)
    return ap.parse_args()


def main():
    args = get_args()
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Conv2d(16, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 36, 10)
    )
    opt = torch.optim.Adam(net.parameters(), lr=1e-3)
    fixed = (torch.randn(16, 3, 10, 10), torch.randint(0, 10, (16,)))
    for step in range(args.steps):
        x, y = fixed if args.overfit_one_batch else (torch.randn(16, 3, 10, 10), torch.randint(0, 10, (16,)))
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 12 == 0:
            print(step, loss.item())


main()
