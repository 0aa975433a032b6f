"""Tables of records that are sorted by the other key, read in the source."""

from __future__ import annotations

from rule_of_source import cases_of

RULE = "sorted-otherwise"
SICK = {
    "lexsort takes its last key first": """
        order = np.lexsort((meter, hour))
        table = kwh[order].reshape(n_meters, n_hours)
        """,
    "keys in a variable": """
        def table(cfg, meter, hour, kwh):
            keys = (meter, hour)
            return kwh[np.lexsort(keys)].reshape(cfg.meters, cfg.hours)
        """,
    "a frame": """
        frame = frame.sort_values(["day", "store"])
        sales = frame["units"].to_numpy().reshape(num_stores, num_days)
        """,
    "one size alone": """
        frame = frame.sort_values(by=["timestamp", "sensor_id"])
        x = torch.tensor(frame.value.values).view(-1, n_steps)
        """,
    "runs of one length": """
        log = sorted(log, key=lambda r: (r.tick, r.pump))
        for start in range(0, len(log), TICKS):
            series.append([r.flow for r in log[start : start + TICKS]])
        """,
    "blocks by number": """
        rows.sort(key=lambda r: (r.week, r.patient))
        x = [values[i * n_weeks : (i + 1) * n_weeks] for i in range(n_patients)]
        """,
    "split into one part for each": """
        frame = frame.sort_values(["date", "user"])
        parts = np.array_split(frame.values, n_users)
        """,
}
HEALTHY = {
    "lexsort, its last key is that of the rows": """
        order = np.lexsort((hour, meter))
        table = kwh[order].reshape(n_meters, n_hours)
        """,
    "rows of hours, turned": """
        frame = frame.sort_values(["hour", "dock"])
        x = frame.bikes.values.reshape(n_hours, n_docks).T
        """,
    "a frame by store first": """
        frame = frame.sort_values(["store", "day"])
        x = frame.units.values.reshape(num_stores, num_days)
        """,
    "one key": """
        rows = sorted(rows, key=lambda r: r.time)
        x = torch.tensor(rows).view(n_batches, n_steps)
        """,
    "windows that slide": """
        log = sorted(log, key=lambda r: (r.tick, r.pump))
        for start in range(len(log) - TICKS):
            windows.append(log[start : start + TICKS])
        """,
    "other sizes": """
        frame = frame.sort_values(["day", "store"])
        x = frame[columns].values.reshape(batches, features)
        """,
}

test_finds, test_leaves = cases_of(RULE, SICK, HEALTHY)
