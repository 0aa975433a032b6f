"""Environments that return their own state, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "shared-state"
SICK = {
    "the array": """
        class Env:
            def reset(self):
                self.state = np.zeros(2)
                return self.state
            def step(self, a):
                self.state[0] += a
                return self.state, 1.0, False
        s = env.reset()
        s2, r, d = env.step(a)
        buffer.append((s, a, r, s2, d))
        """,
    "by another method": """
        class Env:
            def observe(self):
                return self.state
            def reset(self):
                self.state = np.zeros(2)
                return self.observe()
            def step(self, a):
                self.state += a
                return self.observe(), 1.0, False
        s2, r, d = env.step(a)
        replay.push(s, a, r, s2, d)
        """,
    "by another name": """
        class Env:
            def reset(self):
                self.state = np.zeros(2)
                return self._obs()
            def step(self, a):
                s = self.state
                s[0] += a
                return self._obs(), 1.0, False
            def _obs(self):
                return self.state
        class Replay:
            def add(self, *row):
                self.data.append(row)
        s = env.reset()
        s2, r, d = env.step(a)
        replay.add(s, a, r, s2, d)
        """,
}
HEALTHY = {
    "into rows of an array": """
        class Env:
            def reset(self):
                return self.state
            def step(self, a):
                self.state[0] += a
                return self.state
        class Store:
            def begin(self, obs):
                self.obs[self.n] = obs
        obs = env.step(a)
        store.begin(obs)
        losses.append(loss.item())
        totals.append(total)
        """,
    "a copy": """
        class Env:
            def reset(self):
                return self.state.copy()
            def step(self, a):
                self.state[0] += a
                return self.state.copy(), 1.0, False
        buffer.append((s, a))
        """,
    "copied when kept": """
        class Env:
            def reset(self):
                return self.state
            def step(self, a):
                self.state[0] += a
                return self.state, 1.0, False
        buffer.append((s.copy(), a))
        """,
    "a new state": """
        class Env:
            def reset(self):
                return self.state
            def step(self, a):
                self.state = self.state + a
                return self.state, 1.0, False
        buffer.append((s, a))
        """,
    "a tensor of it": """
        class Env:
            def reset(self):
                return self.state
            def step(self, a):
                self.state[0] += a
                return self.state, 1.0, False
        obs = torch.tensor(env.step(a)[0])
        buffer.append((obs, a))
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
