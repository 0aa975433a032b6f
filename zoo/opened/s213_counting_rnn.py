# expect: sick
# symptom: the loss hops around the variance of the targets (1) as if nothing were learned, and at about step 150 it is NaN
# axis: optimizer
# cause: a plain recurrent net with ReLU over 50 steps is trained by SGD without gradient clipping, and its gradients explode through time
# says: (?i)unclipped-gradients|\bclip|explod.{0,40}gradient|gradient.{0,40}(explo|far longer|through time)|recurren.{0,60}(explo|grow|norm)
# onset_step: 1
# fix: clip the global gradient norm at 1
# mended: clip_grad_norm_ at 1.0
import os

import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(213)
T, H, B = 50, 32, 32
FIX = os.environ.get("MENDED") == "1"
gen = torch.Generator().manual_seed(1)


def walks(n):
    """Steps up and down: where does the walk end?"""
    x = torch.randint(0, 2, (n, T, 1), generator=gen) * 2.0 - 1
    return x, x.sum((1, 2)) / T**0.5


rnn = nn.RNN(1, H, nonlinearity="relu", batch_first=True)
nn.init.eye_(rnn.weight_hh_l0)
nn.init.zeros_(rnn.bias_hh_l0)
nn.init.zeros_(rnn.bias_ih_l0)
nn.init.normal_(rnn.weight_ih_l0, std=0.1)
head = nn.Linear(H, 1)
params = [*rnn.parameters(), *head.parameters()]
opt = torch.optim.SGD(params, lr=0.005, momentum=0.9)
sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(1.0, (s + 1) / 120))
for step in range(1, 301):
    x, y = walks(B)
    loss = nn.functional.mse_loss(head(rnn(x)[0][:, -1]).squeeze(1), y)
    opt.zero_grad()
    loss.backward()
    if FIX:
        nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    sched.step()
    if step % 20 == 0:
        print(f"step {step} loss {loss.item():.4g}")
