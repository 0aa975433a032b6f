from __future__ import annotations

from rule_of_source import cases_of

SICK = {
    "in place": """
        def update(obs, actions, advantages, perm):
            b_obs = obs.swapaxes(0, 1).reshape(-1, 4)
            b_actions = actions.swapaxes(0, 1).reshape(-1)
            b_advantages = advantages.reshape(-1)
            for rows in perm.chunk(4):
                step(b_obs[rows], b_actions[rows], b_advantages[rows])
    """,
}
HEALTHY = {
    "as they are": """
        def update(obs, actions, advantages, perm):
            b_obs = obs.reshape(-1, 4)
            b_actions = actions.reshape(-1)
            b_advantages = advantages.reshape(-1)
            plot(obs.transpose(0, 1).reshape(-1, 4))
            for rows in perm.chunk(4):
                step(b_obs[rows], b_actions[rows], b_advantages[rows])
    """,
    "read apart": """
        def update(obs, advantages, perm, other):
            b_obs = obs.transpose(0, 1).reshape(-1, 4)
            b_advantages = advantages.reshape(-1)
            return b_obs[perm].mean() + b_advantages[other].mean()
    """,
}

test_finds, test_leaves = cases_of("mixed-order", SICK, HEALTHY)
