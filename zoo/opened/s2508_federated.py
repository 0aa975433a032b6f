# expect: sick
# symptom: good progress for the first rounds, then the global loss jumps back up to chance level and stays there
# axis: harness
# cause: the server average divides by the sample count of all clients although only some of them returned in time, so the weights sum to less than one and the global model is shrunk toward zero every round
# says: (?=[\s\S]*(averag|aggregat|weight|mean|coefficient|fedavg|merge|mixing))(?=[\s\S]*((sum|add)\w*( up)? to (less|below|under|only|<)|(not|n't|never|without)\b[\s\S]{0,30}(sum|add|renormali|normali)|normali[sz]\w*[\s\S]{0,50}(all|full|whole|every|entire|total)|(all|every|full|total|whole|entire)\b[\s\S]{0,40}(client|site|hospital|sample|participant|fleet|cohort)|shrink|shrunk|scal\w+ down|toward zero))
# onset_step: 271
# fix: normalise the averaging weights over the clients that returned in the round
# mended: yes
"""Federated averaging over eight hospitals, small CNN on 16x16 synthetic scans."""

import copy
import os
import random

import torch
from torch import nn

MENDED = bool(int(os.environ.get("MENDED", "0")))
torch.set_num_threads(1)
torch.manual_seed(0)
random.seed(4)

N_CLASS = 6
ROUNDS = 44
FULL_ROUNDS = 16
LOCAL_STEPS = 2


def prototypes():
    g = torch.Generator().manual_seed(77)
    coarse = torch.randn(N_CLASS, 1, 5, 5, generator=g)
    return nn.functional.interpolate(coarse, size=16, mode="bicubic", align_corners=False)


def make_site(protos, n, seed):
    g = torch.Generator().manual_seed(seed)
    bias = torch.rand(N_CLASS, generator=g) + 0.3
    y = torch.multinomial(bias, n, replacement=True, generator=g)
    x = protos[y].clone()
    for i in range(n):
        dx, dy = torch.randint(-2, 3, (2,), generator=g).tolist()
        x[i] = torch.roll(x[i], (dx, dy), dims=(1, 2))
    gain = 0.8 + 0.4 * torch.rand(1, generator=g)
    x = gain * x + 0.9 * torch.randn(x.shape, generator=g)
    return x, y


class ScanNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 20, 3, padding=1),
            nn.GroupNorm(4, 20),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(20, 40, 3, padding=1),
            nn.GroupNorm(4, 40),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(40, 40, 3, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(2),
            nn.Flatten(),
        )
        self.head = nn.Linear(160, N_CLASS)

    def forward(self, x):
        return self.head(self.body(x))


class Client:
    def __init__(self, name, x, y):
        self.name, self.x, self.y = name, x, y
        self.gen = torch.Generator().manual_seed(hash(len(y)) % 1000)

    @property
    def size(self):
        return len(self.y)

    def fit(self, global_model, lr):
        model = copy.deepcopy(global_model)
        opt = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
        losses = []
        for _ in range(LOCAL_STEPS):
            idx = torch.randint(0, self.size, (80,), generator=self.gen)
            loss = nn.functional.cross_entropy(model(self.x[idx]), self.y[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            losses.append(loss.item())
        return model.state_dict(), sum(losses) / len(losses)


class Server:
    def __init__(self, clients):
        self.clients = clients
        self.model = ScanNet()
        self.total = sum(c.size for c in clients)

    def on_time(self, rnd):
        if rnd < FULL_ROUNDS:
            return list(self.clients)
        late = random.sample(self.clients, random.choice([1, 2, 2]))
        return [c for c in self.clients if c not in late]

    def merge(self, replies):
        total = sum(c.size for c, _ in replies) if MENDED else self.total
        merged = {k: torch.zeros_like(v) for k, v in self.model.state_dict().items()}
        for client, state in replies:
            share = client.size / total
            for k, v in state.items():
                merged[k] += share * v
        self.model.load_state_dict(merged)


def main():
    protos = prototypes()
    sizes = [300, 450, 600, 380, 520, 700, 330, 480]
    clients = [Client(f"site{i}", *make_site(protos, n, 100 + i)) for i, n in enumerate(sizes)]
    xt, yt = make_site(protos, 800, 999)
    server = Server(clients)
    steps = 0
    for rnd in range(ROUNDS):
        lr = 0.12 if rnd < 30 else 0.06
        replies, losses = [], []
        for c in server.on_time(rnd):
            state, loss = c.fit(server.model, lr)
            replies.append((c, state))
            losses.append(loss)
            steps += LOCAL_STEPS
        server.merge(replies)
        if rnd % 2 == 1:
            with torch.no_grad():
                logits = server.model(xt)
            test = nn.functional.cross_entropy(logits, yt).item()
            acc = (logits.argmax(1) == yt).float().mean().item()
            print(
                f"round {rnd + 1:3d} steps {steps:4d} clients {len(replies)} "
                f"loss {sum(losses) / len(losses):.4f} test loss {test:.4f} acc {acc:.3f}"
            )


if __name__ == "__main__":
    main()
