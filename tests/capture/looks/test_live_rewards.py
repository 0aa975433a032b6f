"""Rewards, and actions that were drawn, carry no gradient; what a critic computes does."""

from __future__ import annotations

from rule_of_source import cases_of

UPDATE = """
    def update(policy, critic, world, optimizer):
        states = world.states()
        logits, value = policy(states)
        {actions}
        rewards = world.reward(states, actions)
        advantage = {advantage}
        loss = -(advantage * log_prob(logits, actions)).mean()
        loss.backward()
        optimizer.step()
"""
DRAWN = "actions = sample_slate(logits, 3)"

SICK = {
    "value": UPDATE.format(actions=DRAWN, advantage="rewards - critic(states)"),
    "value-of-both": UPDATE.format(actions=DRAWN, advantage="rewards - value"),
}
HEALTHY = {
    "detached": UPDATE.format(actions=DRAWN, advantage="rewards - value.detach()"),
    "drawn-otherwise": UPDATE.format(actions="actions = pick(logits)", advantage="rewards - value.detach()"),
    "reward-alone": UPDATE.format(actions=DRAWN, advantage="rewards - rewards.mean()"),
}

test_finds, test_leaves = cases_of("live-target", SICK, HEALTHY)
