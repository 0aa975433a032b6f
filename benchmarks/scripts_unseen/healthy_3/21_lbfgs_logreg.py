# expect: healthy
# fault: several forward passes per step, the same batch each time
# note: full-batch LBFGS with strong-Wolfe line search on a logistic model with l2.
import torch

torch.set_num_threads(1)
torch.manual_seed(2)
X = torch.randn(500, 30)
w_true = torch.randn(30)
y = (X @ w_true + torch.randn(500) > 0).float()
w = torch.zeros(30, requires_grad=True)
b = torch.zeros(1, requires_grad=True)
optimizer = torch.optim.LBFGS([w, b], lr=0.3, max_iter=2, line_search_fn="strong_wolfe")
evals = 0


def closure():
    global evals
    evals += 1
    optimizer.zero_grad()
    loss = torch.nn.functional.binary_cross_entropy_with_logits(X @ w + b, y) + 1e-2 * w.pow(2).sum()
    loss.backward()
    return loss


for it in range(60):
    loss = optimizer.step(closure)
    if it % 6 == 0:
        print(it, evals, loss.item())
