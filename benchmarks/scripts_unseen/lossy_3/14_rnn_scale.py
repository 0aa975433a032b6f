# expect: sick
# fault: recurrent weights scaled up, hidden state explodes
# onset_step: 20
# says: (?i)(loss|gradient|explod|recurrent|activation|weights?|progress|spike|diverg|nan|inf)
# note: a "spectral scaling" of the recurrent matrix to norm 2.4 instead of 0.98 runs after every step from step 20 on; the linear-ReLU RNN explodes over 20 time steps.
import torch
from torch import nn

torch.set_num_threads(1)
torch.manual_seed(14)
rnn = nn.RNN(1, 24, nonlinearity="relu", batch_first=True)
out = nn.Linear(24, 1)
params = [*rnn.parameters(), *out.parameters()]
opt = torch.optim.Adam(params, lr=2e-3)
RADIUS = 0.98
RADIUS = 2.4
for step in range(130):
    x = torch.rand(32, 20, 1)
    y = x.mean(1) + 0.5 * x[:, -1]
    h, _ = rnn(x)
    loss = (out(h[:, -1]) - y).pow(2).mean()
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 1.0)
    opt.step()
    if step >= 20:
        with torch.no_grad():
            w = rnn.weight_hh_l0
            w.mul_(RADIUS / torch.linalg.matrix_norm(w, 2))
    if step % 5 == 0:
        print(step, loss.item())
