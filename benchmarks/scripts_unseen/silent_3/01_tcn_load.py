# expect: sick
# fault: learning rate stays at 0 through an integer division in the warm-up
# onset_step: 0
# says: (?i)((learning )?rate\b.{0,40}(\b0\b(?!\.)|\b0\.0+\b(?!\d)|zero|nothing)|\blr\b.{0,20}(\b0\b(?!\.\d)|zero)|parameters?.{0,30}(n.t|not|never|no) (chang|mov)|never mov|not mov|unchanged|no update|warm.?up)
# note: the LambdaLR factor is `step // warmup`, 0 for all the 200 steps of the warm-up that was copied from a longer run; somebody wrote // for /.
import argparse
import torch
from torch import nn

torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, ch, dilation):
        super().__init__()
        self.conv = nn.Conv1d(ch, ch, 3, padding=dilation, dilation=dilation)
        self.norm = nn.GroupNorm(4, ch)

    def forward(self, x):
        return x + torch.relu(self.norm(self.conv(x)))


def make_windows(n, length, horizon):
    t0 = torch.rand(n, 1) * 500
    t = t0 + torch.arange(length + horizon)
    y = torch.sin(t * 6.283 / 24) + 0.4 * torch.sin(t * 6.283 / 7) + 0.05 * torch.randn_like(t)
    return y[:, :length], y[:, length:]


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--steps", type=int, default=160)
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--lr", type=float, default=3e-3)
    args = p.parse_args()
    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Conv1d(1, 16, 1), Block(16, 1), Block(16, 2), Block(16, 4), nn.Flatten(), nn.Linear(16 * 48, 6)
    )
    opt = torch.optim.AdamW(net.parameters(), lr=args.lr)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1, s // args.warmup))
    for step in range(args.steps):
        x, y = make_windows(32, 48, 6)
        loss = nn.functional.mse_loss(net(x[:, None]), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        sched.step()
        if step % 20 == 0:
            print(f"step {step} loss {loss.item():.4f}")
    with torch.no_grad():
        x, y = make_windows(256, 48, 6)
        print("final mse", nn.functional.mse_loss(net(x[:, None]), y).item())


if __name__ == "__main__":
    main()
