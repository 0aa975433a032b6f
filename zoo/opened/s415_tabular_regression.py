# expect: sick
# symptom: the first epoch is fine; at each later epoch boundary the training loss jumps up higher, and the test error explodes
# axis: harness
# cause: the standardisation is done in place on slices that are views of the dataset, so the stored features are standardised again every epoch and grow without bound
# says: in.?place|(view|slice)\w*.{0,60}(dataset|data|feature|modif|chang|overwr)|(dataset|data|feature|input)\w*.{0,60}(modif|mutat|overwritt|drift|grow|re-?normali|repeated|every epoch|each epoch|again|scale (change|up|grow))|(normali[sz]|standardi[sz]|scal)\w*.{0,40}(twice|repeated|again|every epoch|each epoch|more than once|accumulat)
# onset_step: 121
# fix: standardise out of place so that the stored data stay as they are
# mended: the batch is computed as (xb - mean) / std into a new tensor; train and test error fall together
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(21)
torch.set_num_threads(1)

FEATS, BATCH, N_TRAIN, N_TEST, EPOCHS = 32, 64, 7680, 2000, 6


class ResidualMLP(nn.Module):
    def __init__(self, feats, width=160, depth=4):
        super().__init__()
        self.inp = nn.Linear(feats, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(depth)
        )
        self.out = nn.Linear(width, 1)

    def forward(self, x):
        h = F.silu(self.inp(x))
        for layer in self.layers:
            h = h + 0.5 * layer(h)
        return self.out(h).squeeze(-1)


def make_table():
    n = N_TRAIN + N_TEST
    scale = 0.2 + 0.3 * torch.rand(FEATS)
    shift = 0.3 * torch.randn(FEATS)
    z = torch.randn(n, FEATS)
    w1, w2 = torch.randn(FEATS, 6) / FEATS**0.5, torch.randn(6)
    y = torch.tanh(z @ w1) @ w2 + 0.5 * (z[:, 0] * z[:, 1]) + 0.1 * torch.randn(n)
    x = z * scale + shift
    return x[:N_TRAIN], y[:N_TRAIN], x[N_TRAIN:], y[N_TRAIN:]


def batches(x, y, size):
    starts = torch.randperm(len(x) // size) * size
    for s in starts.tolist():
        yield x[s : s + size], y[s : s + size]


@torch.no_grad()
def test_error(model, x, y, mean, std):
    model.eval()
    mse = F.mse_loss(model((x - mean) / std), y).item()
    model.train()
    return mse


def main():
    xtr, ytr, xte, yte = make_table()
    mean, std = xtr.mean(0), xtr.std(0)
    ymean, ystd = ytr.mean(), ytr.std()
    ytr, yte = (ytr - ymean) / ystd, (yte - ymean) / ystd
    model = ResidualMLP(FEATS)
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-3)
    t0 = time.time()
    step = 0
    for epoch in range(EPOCHS):
        for xb, yb in batches(xtr, ytr, BATCH):
            step += 1
            if MENDED:
                xb = (xb - mean) / std
            else:
                xb -= mean
                xb /= std
            loss = F.mse_loss(model(xb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            if step == 1 or step % 40 == 0:
                print(f"epoch {epoch} step {step:4d} loss {loss.item():.4f}")
        print(f"epoch {epoch} test mse {test_error(model, xte, yte, mean, std):.4f}")
    print(f"done in {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
