"""A time limit that is stored as the end of an episode, and the ways to keep both flags that are right."""

from __future__ import annotations

from rule_of_source import cases_of

LOOP = """
    def play(env, agent, memory, dones):
        state, _ = env.reset()
        for step in range(1000):
            action = agent.act(state)
            {values} = env.step(action)
            {store}
            state = env.reset()[0] if {over} else following
"""
FIVE = "following, reward, terminated, truncated, info"
EITHER = "terminated or truncated"


def loop(store: str, values: str = FIVE, over: str = EITHER) -> str:
    return LOOP.format(values=values, store=store, over=over)


SICK = {
    "pushed": loop("memory.push(state, action, reward, following, truncated)"),
    "by-another-name": loop("done = truncated; memory.add(state, action, reward, following, done)"),
    "in-a-tuple": loop("memory.append((state, action, reward, following, float(truncated)))"),
    "in-a-transition": loop("memory.append(Transition(state, action, reward, following, truncated))"),
    "by-keywords": loop("memory.add(obs=state, act=action, rew=reward, nxt=following, done=truncated)"),
    "ends-alone": loop("dones.append(truncated)"),
    "into-an-array": loop("dones[step] = truncated"),
    "named-done": loop(
        "memory.add(state, action, reward, following, done)",
        values="following, reward, crashed, done, _",
        over="crashed or done",
    ),
}
HEALTHY = {
    "terminated": loop("memory.push(state, action, reward, following, terminated)"),
    "either": loop("memory.push(state, action, reward, following, terminated or truncated)"),
    "both": loop("memory.push(state, action, reward, following, terminated, truncated)"),
    "done-of-either": loop("done = terminated or truncated; memory.add(state, action, reward, following, done)"),
    "renamed-later": loop(
        "done = truncated; done = terminated; memory.add(state, action, reward, following, done)",
    ),
    "four-values": loop(
        "memory.add(state, action, reward, following, done)", values="following, reward, done, info", over="done"
    ),
    "a-cost": loop(
        "memory.add(state, action, reward, following, done)", values="following, reward, cost, done, info", over="done"
    ),
    "counted-alone": loop("cut = cut + int(truncated)"),
}

test_finds, test_leaves = cases_of("limit-as-end", SICK, HEALTHY)
