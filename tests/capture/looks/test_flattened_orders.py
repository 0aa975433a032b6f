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
    "a stack of columns": """
        def collect(obs, act, rew, val, done, last, envs, perm):
            adv = np.stack([gae(rew[:, i], val[:, i], done[:, i], last[i]) for i in range(envs)])
            ret = adv + np.stack([val[:, e] for e in range(envs)], axis=0)
            b_obs, b_act = torch.from_numpy(obs.reshape(-1, 4)), torch.from_numpy(act.reshape(-1))
            b_adv = torch.from_numpy(adv.reshape(-1))
            b_ret = torch.from_numpy(ret.reshape(-1))
            for rows in perm.split(64):
                step(b_obs[rows], b_act[rows], b_adv[rows], b_ret[rows])
    """,
}
HEALTHY = {
    "a stack of columns along the second dimension": """
        def collect(obs, act, rew, val, done, last, envs, perm):
            adv = np.stack([gae(rew[:, i], val[:, i], done[:, i], last[i]) for i in range(envs)], axis=1)
            b_obs, b_act = torch.from_numpy(obs.reshape(-1, 4)), torch.from_numpy(act.reshape(-1))
            b_adv = torch.from_numpy(adv.reshape(-1))
            for rows in perm.split(64):
                step(b_obs[rows], b_act[rows], b_adv[rows])
    """,
    "a stack of steps": """
        def collect(obs, rew, val, last, steps, perm):
            adv = np.stack([gae(rew[i, :], val[i, :], last) for i in range(steps)])
            b_obs, b_adv = obs.reshape(-1, 4), adv.reshape(-1)
            for rows in perm.split(64):
                step(b_obs[rows], b_adv[rows])
    """,
    "all are stacks of columns": """
        def collect(obs, rew, envs, perm):
            obs = np.stack([obs[:, i] for i in range(envs)])
            adv = np.stack([gae(rew[:, i]) for i in range(envs)])
            b_obs = obs.reshape(-1, 4)
            b_adv = adv.reshape(-1)
            for rows in perm.split(64):
                step(b_obs[rows], b_adv[rows])
    """,
    "turned back": """
        def collect(obs, rew, envs, perm):
            adv = np.stack([gae(rew[:, i]) for i in range(envs)])
            b_obs = obs.reshape(-1, 4)
            b_adv = adv.T.reshape(-1)
            for rows in perm.split(64):
                step(b_obs[rows], b_adv[rows])
    """,
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
