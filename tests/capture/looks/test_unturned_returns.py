"""Discounted returns that are left in the order of the end, in the source of a script."""

from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "function": """
        def discounted_returns(rewards, gamma):
            out, running = [], 0.0
            for r in reversed(rewards):
                running = r + gamma * running
                out.append(running)
            return out
        returns = torch.tensor(discounted_returns(rewards, 0.99))
        """,
    "range": """
        for t in range(len(rewards) - 1, -1, -1):
            G = rewards[t] + GAMMA * G
            returns.append(G)
        loss = -(torch.stack(log_probs) * torch.tensor(returns)).sum()
        """,
    "slice": """
        class Agent:
            def update(self, rewards):
                total, targets = 0, []
                for reward in rewards[::-1]:
                    total = reward + self.gamma * total
                    targets.append(total)
                targets = torch.as_tensor(targets)
                self.step(-(self.saved * (targets - targets.mean())).mean())
        """,
    "turned before": """
        rewards.reverse()
        for r in rewards:
            ret = r + 0.97 * ret
            returns.append(ret)
        train(states, returns)  # gamma
        """,
    "advantages": """
        for delta, done in zip(reversed(deltas), reversed(dones)):
            gae = delta + gamma * lam * (1 - done) * gae
            advantages.append(gae)
        adv = torch.stack(advantages)
        """,
    "turned twice": """
        for r in reversed(rewards):
            total = r + gamma * total
            returns.insert(0, total)
        returns = torch.tensor(returns[::-1])
        """,
}

HEALTHY = {
    "in front": """
        for r in reversed(rewards):
            total = r + gamma * total
            returns.insert(0, total)
        returns = torch.tensor(returns)
        """,
    "deque": """
        for r in rewards[::-1]:
            total = r + gamma * total
            returns.appendleft(total)
        """,
    "reverse": """
        for r in reversed(rewards):
            total = r + gamma * total
            returns.append(total)
        returns.reverse()
        """,
    "flip": """
        for r in reversed(rewards):
            total = r + gamma * total
            returns.append(total)
        returns = torch.tensor(returns).flip(0)
        """,
    "by the caller": """
        def discounted(rewards, gamma):
            returns, total = [], 0.0
            for r in reversed(rewards):
                total = r + gamma * total
                returns.append(total)
            return returns
        batch = list(reversed(discounted(rewards, 0.99)))
        """,
    "by the caller, later": """
        def discounted(rewards, gamma):
            returns, total = [], 0.0
            for r in reversed(rewards):
                total = r + gamma * total
                returns.append(total)
            return returns
        def train(rewards):
            got = torch.tensor(discounted(rewards, 0.99))
            return torch.flip(got, [0])
        """,
    "pairs turned, too": """
        for r in reversed(rewards):
            total = r + gamma * total
            returns.append(total)
        log_probs = log_probs[::-1]
        """,
    "pairs collected": """
        for t in reversed(range(len(rewards))):
            total = rewards[t] + gamma * total
            returns.append(total)
            actions.append(taken[t])
        """,
    "by index": """
        returns = np.zeros(n)
        for t in reversed(range(n)):
            total = rewards[t] + gamma * total
            returns[t] = total
        """,
    "forwards": """
        for r in rewards:
            total = r + gamma * total
            totals.append(total)
        reversed(x)
        """,
    "only a mean": """
        for r in reversed(rewards):
            total = r + gamma * total
            returns.append(total)
        print(sum(returns) / len(returns))
        """,
    "another sum": """
        for name in reversed(names):
            parts.append(name + suffix)
        returns = parts
        gamma = 1
        """,
}

test_finds, test_leaves = cases_of("reversed-returns", SICK, HEALTHY)
