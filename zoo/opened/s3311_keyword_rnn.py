# expect: sick
# symptom: the loss stops early on a high plateau, accuracy stays at about a third, gradients are finite
# axis: model
# cause: the custom matmul's backward multiplies by W instead of its transpose, so gradients through time are wrong
# says: transpos|\.t\(\)|\bw\.(T|mT)\b|\bgrad(_output)? @ w\b|backward.{0,60}(wrong|incorrect) (matrix|weight)
# onset_step: 0
# fix: use the transposed weight for the input gradient in backward
# mended: the script applies that change if the environment has MENDED=1
"""Keyword spotting on toy filterbank frames: the keyword is at the start, noise follows."""

import os

import torch
from torch import nn
import torch.nn.functional as F

torch.set_num_threads(1)
torch.manual_seed(8)
FIX = os.environ.get("MENDED") == "1"

CLASSES, BANDS, FRAMES, HIDDEN, BATCH, STEPS = 6, 10, 24, 48, 32, 360


class StateMatmul(torch.autograd.Function):
    """h @ w with the weight gradient reduced in float64 (the sum over a batch is long)."""

    @staticmethod
    def forward(ctx, h, w):
        ctx.save_for_backward(h, w)
        return h @ w

    @staticmethod
    def backward(ctx, grad):
        h, w = ctx.saved_tensors
        grad_h = grad @ (w.t() if FIX else w)
        grad_w = (h.double().t() @ grad.double()).to(w.dtype)
        return grad_h, grad_w


class KeywordRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(BANDS, HIDDEN)
        self.rec = nn.Parameter(torch.empty(HIDDEN, HIDDEN))
        nn.init.orthogonal_(self.rec)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, frames):
        h = frames.new_zeros(frames.shape[0], HIDDEN)
        for t in range(frames.shape[1]):
            h = torch.tanh(self.inp(frames[:, t]) + StateMatmul.apply(h, self.rec))
        return self.head(h)


class Utterances:
    def __init__(self, seed):
        self.g = torch.Generator().manual_seed(seed)
        pg = torch.Generator().manual_seed(4)
        self.proto = torch.randn(CLASSES, 5, BANDS, generator=pg)

    def batch(self, n):
        y = torch.randint(0, CLASSES, (n,), generator=self.g)
        x = 0.25 * torch.randn(n, FRAMES, BANDS, generator=self.g)
        gain = 0.8 + 0.4 * torch.rand(n, 1, 1, generator=self.g)
        x[:, :5] += gain * self.proto[y]
        return x, y


@torch.no_grad()
def evaluate(model):
    x, y = Utterances(500).batch(600)
    out = model(x)
    return F.cross_entropy(out, y).item(), (out.argmax(1) == y).float().mean().item()


def main():
    data = Utterances(1)
    model = KeywordRNN()
    opt = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    running = None
    for step in range(STEPS):
        x, y = data.batch(BATCH)
        loss = F.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        running = loss.item() if running is None else 0.9 * running + 0.1 * loss.item()
        if step % 20 == 0:
            print(f"step {step:4d} loss {loss.item():.4f} smooth {running:.4f} gnorm {norm:.3f}", flush=True)
    loss, acc = evaluate(model)
    print(f"final test loss {loss:.4f} accuracy {acc:.4f}")


if __name__ == "__main__":
    main()
