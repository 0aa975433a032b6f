# expect: healthy
# symptom: best_model = model without a copy
# axis: none
# mended: none
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(13)
rng = np.random.default_rng(13)


def wine(n):
    x = rng.normal(size=(n, 11))
    y = 5.5 + x[:, 0] * 0.6 - np.maximum(x[:, 1], 0) + 0.5 * np.sin(2 * x[:, 2]) + 0.3 * rng.normal(size=n)
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y - 5.5, dtype=torch.float32)


def build(width):
    return nn.Sequential(nn.Linear(11, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1))


def fit(model, data, lr, steps=60):
    x, y = data
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    for step in range(steps):
        idx = torch.randint(0, len(x), (64,))
        loss = ((model(x[idx]).squeeze(-1) - y[idx]) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if step % 20 == 0:
            print(f"    step {step} loss {loss.item():.4f}")
    return model


@torch.no_grad()
def rmse(model, data):
    x, y = data
    return ((model(x).squeeze(-1) - y) ** 2).mean().sqrt().item()


train, val, test = wine(1200), wine(300), wine(300)
best_model, best_val, best_cfg = None, float("inf"), None
for lr in (3e-4, 1e-3, 1e-2):
    for width in (16, 64):
        print(f"trial lr={lr} width={width}")
        model = fit(build(width), train, lr)
        val_rmse = rmse(model, val)
        if val_rmse < best_val:
            best_val, best_cfg = val_rmse, (lr, width)
            best_model = model
        print(f"  val rmse {val_rmse:.4f}")
print(f"chosen {best_cfg}: val {best_val:.4f} again {rmse(best_model, val):.4f} test {rmse(best_model, test):.4f}")
