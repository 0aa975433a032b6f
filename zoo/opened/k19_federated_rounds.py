# expect: healthy
# symptom: a new Adam is made in each round
# axis: none
# mended: none
import copy
import numpy as np
import torch
import torch.nn as nn

torch.set_num_threads(1)
torch.manual_seed(26)
rng = np.random.default_rng(26)
CLIENTS, ROUNDS, LOCAL_STEPS, DIM, CLASSES = 5, 10, 8, 16, 6
CENTRES = rng.normal(0, 1.1, (CLASSES, DIM))


class Client:
    """Keeps its data; sees the global weights at the start of a round only."""

    def __init__(self, n):
        share = rng.dirichlet(np.full(CLASSES, 1.0))
        y = rng.choice(CLASSES, n, p=share)
        self.x = torch.tensor(CENTRES[y] + rng.normal(size=(n, DIM)), dtype=torch.float32)
        self.y = torch.tensor(y)

    def local_update(self, global_model):
        model = copy.deepcopy(global_model)
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(LOCAL_STEPS):
            idx = torch.randint(0, len(self.y), (32,))
            loss = nn.functional.cross_entropy(model(self.x[idx]), self.y[idx])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return model.state_dict(), len(self.y), loss.item()


def average(updates):
    total = sum(n for _, n, _ in updates)
    return {k: sum(state[k] * (n / total) for state, n, _ in updates) for k in updates[0][0]}


server = nn.Sequential(nn.Linear(DIM, 48), nn.ReLU(), nn.Linear(48, CLASSES))
clients = [Client(int(rng.integers(150, 600))) for _ in range(CLIENTS)]
y_test = rng.integers(0, CLASSES, 600)
x_test = torch.tensor(CENTRES[y_test] + rng.normal(size=(600, DIM)), dtype=torch.float32)
y_test = torch.tensor(y_test)
for rnd in range(ROUNDS):
    updates = [c.local_update(server) for c in clients]
    server.load_state_dict(average(updates))
    with torch.no_grad():
        acc = (server(x_test).argmax(1) == y_test).float().mean().item()
    print(f"round {rnd} local loss {np.mean([u[2] for u in updates]):.3f} global acc {acc:.3f}")
