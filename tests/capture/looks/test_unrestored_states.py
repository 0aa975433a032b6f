"""States that are saved and never read back, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "unrestored-state"
SICK = {
    "a schedule": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        ck = torch.load(path)
        m.load_state_dict(ck["model"])
        o.load_state_dict(ck["opt"])
        """,
    "a generator, by keywords": """
        torch.save(dict(net=m.state_dict(), optimizer=o.state_dict(), gen=g.get_state()), path)
        ck = torch.load(path)
        m.load_state_dict(ck["net"])
        o.load_state_dict(ck["optimizer"])
        """,
}
HEALTHY = {
    "all are read": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        ck = torch.load(path)
        m.load_state_dict(ck["model"])
        o.load_state_dict(ck["opt"])
        if "sched" in ck:
            s.load_state_dict(ck["sched"])
        """,
    "in a loop": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        for name, one in zip(("model", "opt", "sched"), (m, o, s)):
            one.load_state_dict(ck[name])
        """,
    "only the weights, to begin another training": """
        torch.save({"model": m.state_dict(), "opt": o.state_dict(), "sched": s.state_dict()}, path)
        m.load_state_dict(torch.load(path)["model"])
        """,
}

test_the_mistake, test_what_resembles_it = cases_of(RULE, SICK, HEALTHY)
