# expect: healthy
# cause: none, meta-learning with an inner and an outer loop; the loss before adaptation stays high and only the one after it falls
import torch
import torch.nn.functional as F
from torch.func import functional_call

torch.manual_seed(250)


def task():
    """a sine of its own amplitude and phase, ten points for the adaptation and ten for the judgement"""
    amp, phase = 0.5 + 3 * torch.rand(()), 3.1416 * torch.rand(())
    x = 10 * torch.rand(20, 1) - 5
    y = amp * torch.sin(x + phase)
    return x[:10], y[:10], x[10:], y[10:]


net = torch.nn.Sequential(
    torch.nn.Linear(1, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
)
meta = torch.optim.Adam(net.parameters(), lr=2e-3)
INNER_LR, TASKS = 0.02, 10


def adapt(params, x, y, steps, create_graph):
    for _ in range(steps):
        loss = F.mse_loss(functional_call(net, params, (x,)), y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=create_graph)
        params = {k: p - INNER_LR * g for (k, p), g in zip(params.items(), grads)}
    return params


def judge(n=100):
    before = after = 0.0
    for _ in range(n):
        xs, ys, xq, yq = task()
        params = dict(net.named_parameters())
        before += F.mse_loss(net(xq), yq).item() / n
        fast = adapt(params, xs, ys, 5, False)
        after += F.mse_loss(functional_call(net, fast, (xq,)), yq).item() / n
    return before, after


print("start: before %.3f after adaptation %.3f" % judge())
for it in range(250):
    outer = 0.0
    for _ in range(TASKS):
        xs, ys, xq, yq = task()
        fast = adapt(dict(net.named_parameters()), xs, ys, 2, True)
        outer = outer + F.mse_loss(functional_call(net, fast, (xq,)), yq) / TASKS
    meta.zero_grad()
    outer.backward()
    torch.nn.utils.clip_grad_norm_(net.parameters(), 5.0)
    meta.step()
    if it % 50 == 49:
        print(
            "iteration %d outer loss %.3f; new tasks: before %.3f after adaptation %.3f"
            % (it + 1, outer.item(), *judge())
        )
