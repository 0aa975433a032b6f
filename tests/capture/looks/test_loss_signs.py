"""Terms of a loss that have the wrong sign, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "wrong-sign"
SICK = {
    "returns are minimised": """
        loss = (dist.log_prob(a) * advantages).mean()
        loss.backward()
        """,
    "an entropy bonus that is added": """
        policy_loss = -(new_logprob * adv).mean()
        entropy = dist.entropy().mean()
        logp = dist.log_prob(a)
        loss = policy_loss + 0.5 * value_loss + 0.01 * entropy
        loss.backward()
        """,
    "a coefficient below zero": """
        ENT = -0.01
        logp = dist.log_prob(a)
        loss = -(logp * adv).mean() - ENT * dist.entropy().mean()
        loss.backward()
        """,
    "a divergence that is maximised": """
        kld = 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        loss.backward()
        """,
    "subtracted": """
        def kl_of(mu, logvar):
            return -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum(1).mean()
        loss = rec - beta * kl_of(mu, logvar)
        loss.backward()
        """,
    "one part of what a function returns": """
        def loss_function(logits, x, mu, logvar):
            kld = 0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).sum(1).mean()
            return bce(logits, x) + kld, kld
        loss, kld = loss_function(logits, x, mu, logvar)
        loss.backward()
        """,
    "a list of steps": """
        losses = []
        for logp, R in zip(log_probs, returns):
            losses.append(logp * R)
        loss = torch.stack(losses).sum()
        loss.backward()
        """,
}
HEALTHY = {
    "the minus in front": """
        loss = -(dist.log_prob(a) * advantages).mean()
        loss.backward()
        """,
    "the minus inside": """
        losses = []
        for logp, R in zip(log_probs, returns):
            losses.append(-logp * R)
        torch.stack(losses).sum().backward()
        """,
    "an objective, turned at the end": """
        objective = (dist.log_prob(a) * advantages).mean() + 0.01 * dist.entropy().mean()
        (-objective).backward()
        """,
    "an optimizer that maximises": """
        opt = torch.optim.Adam(policy.parameters(), maximize=True)
        loss = (dist.log_prob(a) * advantages).mean()
        loss.backward()
        """,
    "costs": """
        loss = (dist.log_prob(a) * costs).mean()
        loss.backward()
        """,
    "advantages of costs": """
        log_probs, costs = simulate(policy)
        advantage = costs - costs.mean()
        loss = (log_probs * advantage).mean()
        loss.backward()
        """,
    "clipped ratios": """
        ratio = (logp - old_logp).exp()
        pg_loss1 = -advantages * ratio
        pg_loss2 = -advantages * torch.clamp(ratio, 0.8, 1.2)
        loss = torch.max(pg_loss1, pg_loss2).mean() - 0.01 * entropy.mean()
        loss.backward()
        """,
    "entropy of labels": """
        entropy = -(p * p.log()).sum(1).mean()
        loss = ce + 0.1 * entropy
        loss.backward()
        """,
    "a divergence with its minus": """
        kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss = bce + kld
        loss.backward()
        """,
    "written the other way": """
        kl = 0.5 * (mu**2 + logvar.exp() - 1 - logvar).sum(1).mean()
        loss = rec + beta * kl
        loss.backward()
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
