# expect: sick
# symptom: the training loss falls to almost zero but the validation loss gets stuck at twice the value that is possible, although every batch is generated fresh and nothing should be memorised
# axis: harness
# cause: the evaluation function sets the global random seed, so after each evaluation the training loop draws the very same batches again
# says: (re-?)?seed|manual_seed|(global )?(rng|random state|random.?number|generator).{0,50}(reset|restor|rewound|same|eval|fixed|repeat)|(same|identical|repeat\w*|duplicate\w*).{0,40}(batch|sample|data)|(batch|sample|data)\w*.{0,40}(repeat|identical|recur|the same|duplicat)
# onset_step: 21
# fix: draw the evaluation data from its own generator and leave the global random state alone
# mended: evaluate() restores the random state that it found; training batches stay fresh and the validation loss follows the training loss
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MENDED = os.environ.get("MENDED") == "1"
torch.manual_seed(31)
torch.set_num_threads(1)

LENGTH, BATCH, STEPS, EVAL_EVERY = 64, 32, 800, 10


class Estimator(nn.Module):
    def __init__(self, width=192):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(1, 24, 8, stride=4, padding=2), nn.ReLU())
        self.body = nn.Sequential(nn.Linear(24 * LENGTH // 4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.body(self.front(x[:, None]).flatten(1)))


def make_batch(n):
    t = torch.arange(LENGTH).float()
    freq = 0.2 + 1.0 * torch.rand(n, 1)
    rate = 2.0 * torch.rand(n, 1) - 1.0
    phase = 2 * torch.pi * torch.rand(n, 1)
    amp = torch.exp(rate * (t / LENGTH - 0.5) * 2)
    x = amp * torch.sin(freq * t + phase) + 0.6 * torch.randn(n, LENGTH)
    y = torch.cat([(freq - 0.7) / 0.29, rate / 0.58], 1)
    return x, y


@torch.no_grad()
def evaluate(model):
    state = torch.get_rng_state()
    torch.manual_seed(1234)
    model.eval()
    x, y = make_batch(512)
    loss = F.mse_loss(model(x), y).item()
    model.train()
    if MENDED:
        torch.set_rng_state(state)
    return loss


def main():
    model = Estimator()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    t0 = time.time()
    running = 0.0
    for step in range(1, STEPS + 1):
        x, y = make_batch(BATCH)
        loss = F.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        running += loss.item()
        if step % EVAL_EVERY == 0:
            val = evaluate(model)
            if step % (4 * EVAL_EVERY) == 0:
                print(f"step {step:4d} train {running / EVAL_EVERY:.4f} val {val:.4f}")
            running = 0.0
    print(f"final val {evaluate(model):.4f}  time {time.time() - t0:.1f}s")


if __name__ == "__main__":
    main()
