# expect: healthy
# symptom: resembles the fault that a term is summed over the whole batch and added to the value of each row, so it counts as often as there are rows
# axis: none
# mended: none
import torch
import torch.nn as nn
import torch.nn.functional as F


class Router(nn.Module):
    """Chooses one of several servers from their queue lengths."""

    def __init__(self, servers, width=32):
        super().__init__()
        self.servers = servers
        self.fc1 = nn.Linear(2 * servers, width)
        self.fc2 = nn.Linear(width, servers)

    def forward(self, obs):
        return F.log_softmax(self.fc2(torch.tanh(self.fc1(obs))), dim=-1)


class Cluster:
    def __init__(self, servers, generator):
        self.servers = servers
        self.gen = generator

    def observe(self, n):
        queue = torch.rand(n, self.servers, generator=self.gen)
        speed = 0.5 + torch.rand(n, self.servers, generator=self.gen)
        return torch.cat([queue, speed], dim=1)

    def latency(self, obs, choice):
        queue, speed = obs.chunk(2, dim=1)
        wait = (queue + 0.2) / speed
        return wait.gather(1, choice.unsqueeze(1)).squeeze(1)


def reinforce_step(router, cluster, opt, baseline, n=160, temperature=0.02):
    obs = cluster.observe(n)
    logp = router(obs)
    choice = torch.multinomial(logp.exp(), 1).squeeze(1)
    cost = cluster.latency(obs, choice)
    chosen = logp.gather(1, choice.unsqueeze(1)).squeeze(1)
    pg = chosen * (cost - baseline)
    entropy = -(logp.exp() * logp).sum() / n
    loss = (pg - temperature * entropy).mean()
    opt.zero_grad()
    loss.backward()
    opt.step()
    return cost.mean().item(), entropy.item()


def main():
    torch.manual_seed(26)
    cluster = Cluster(4, torch.Generator().manual_seed(26))
    router = Router(4)
    opt = torch.optim.Adam(router.parameters(), lr=1e-2)
    baseline = cluster.latency(cluster.observe(500), torch.randint(0, 4, (500,))).mean().item()
    for it in range(60):
        cost, ent = reinforce_step(router, cluster, opt, baseline)
        baseline = 0.9 * baseline + 0.1 * cost
        if it % 12 == 11:
            with torch.no_grad():
                obs = cluster.observe(1000)
                greedy = cluster.latency(obs, router(obs).argmax(1)).mean().item()
            print(f"iter {it + 1} cost {cost:.3f} entropy {ent:.3f} greedy {greedy:.3f}")


if __name__ == "__main__":
    main()
