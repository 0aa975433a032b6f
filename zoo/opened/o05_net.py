# expect: healthy
# symptom: a state is carried on, which looks like one of unrelated batches
# axis: none
# mended: none
import torch
from torch import nn
from torch.func import functional_call
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(2)
torch.set_num_threads(1)


def init_state(params, n_features):
    return {
        "momentum": {k: torch.zeros_like(v) for k, v in params.items()},
        "ema": {k: v.clone() for k, v in params.items()},
        "mean": torch.zeros(n_features),
        "var": torch.ones(n_features),
    }


def normalise(x, state, rate=0.1):
    flat = x.reshape(-1, x.size(-1))
    mean = (1 - rate) * state["mean"] + rate * flat.mean(0)
    var = (1 - rate) * state["var"] + rate * flat.var(0)
    return (x - mean) / (var + 1e-5).sqrt(), mean.detach(), var.detach()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(3, 20, batch_first=True)
        self.head = nn.Linear(20, 1)

    def forward(self, x):
        _, h = self.rnn(x)
        return self.head(h[-1]).squeeze(-1)


def train_step(net, params, state, x, y, lr=0.05, mu=0.9, decay=0.97):
    x, mean, var = normalise(x, state)
    loss = nn.functional.mse_loss(functional_call(net, params, (x,)), y)
    grads = torch.autograd.grad(loss, list(params.values()))
    new_params, momentum, ema = {}, {}, {}
    for (k, p), g in zip(params.items(), grads):
        momentum[k] = mu * state["momentum"][k] + g
        new_params[k] = (p - lr * momentum[k]).detach().requires_grad_()
        ema[k] = decay * state["ema"][k] + (1 - decay) * new_params[k].detach()
    return new_params, {"momentum": momentum, "ema": ema, "mean": mean, "var": var}, loss.item()


def make_data(n, length=10):
    x = torch.randn(n, length, 3) * torch.tensor([1.0, 4.0, 0.3]) + torch.tensor([0.0, 5.0, -1.0])
    y = x[:, -3:, 0].mean(1) + 0.1 * (x[:, -1, 1] - 5.0)
    return x, y


x_test, y_test = make_data(300)
loader = DataLoader(TensorDataset(*make_data(960)), batch_size=32, shuffle=True)
net = Net()
params = {k: v.detach().clone().requires_grad_() for k, v in net.named_parameters()}
state = init_state({k: v.detach() for k, v in params.items()}, 3)

for epoch in range(8):
    total = 0.0
    for xb, yb in loader:
        params, state, loss = train_step(net, params, state, xb, yb)
        total += loss
    with torch.no_grad():
        xt = (x_test - state["mean"]) / (state["var"] + 1e-5).sqrt()
        test = nn.functional.mse_loss(functional_call(net, state["ema"], (xt,)), y_test).item()
    print(f"epoch {epoch} train {total / len(loader):.4f} ema test {test:.4f}")
