"""Times that become float32 as they are, and those of which nothing is lost that matters."""

from __future__ import annotations

from rule_of_source import cases_of

BEGIN = """
    import numpy as np
    import torch

    START = 1_700_000_000
"""


def script(text: str) -> str:
    return BEGIN + "".join(f"\n    {line}" for line in text.splitlines())


TABLE = """rows = torch.tensor(records, dtype=torch.float32)
clock, level = rows.unbind(-1)
gaps = clock[1:] - clock[:-1]"""
SICK = {
    "astype": script("stamps = stamps.astype(np.float32)\ngaps = np.diff(stamps)"),
    "float": script("t = timestamps.float()\nphase = torch.remainder(t, 300.0)"),
    "to": script("ts = torch.as_tensor(log['ts']).to(torch.float32)\nx = torch.sin(ts / period)"),
    "dtype": script(
        "ts = torch.tensor(times_of(unix_time), dtype=torch.float64)\nts = torch.tensor(unix_time, "
        "dtype=torch.float32)\ngaps = ts[:, 1:] - ts[:, :-1]"
    ),
    "beside-another-difference": script(
        "error = x[0] - mean\nts = timestamps.float()\ngaps = ts[1:] - ts[:-1]\nloss = y[0] - target"
    ),
    "of-one": script("t = torch.tensor(self.t_ms[i].item(), dtype=torch.float32)\nphase = t % cycle"),
    "a-column-of-a-table": script(TABLE),
    "a-column-with-a-name": script(TABLE.replace("clock", "stamps")),
    "counted-from-1970": script(
        "log['epoch'] = (log['when'] - pd.Timestamp('1970-01-01')) // second\nt = log['epoch'].to_numpy('float32')\n"
        "x = t % 3600"
    ),
    "an-attribute-and-its-differences": script(
        "stamps = torch.as_tensor(log.time, dtype=torch.float32)\ngaps = stamps.diff(dim=1)"
    ),
    "a-typed-column": script("df = df.astype({'unix_ms': 'float32'})\nwait = df['unix_ms'].diff()"),
    "since-the-first": script("tick = part['n'].astype(np.float32)\nelapsed = (tick - tick[0]) / 1e7"),
    "read": script("table = pd.read_csv(path)\nt = table['timestamp'].to_numpy().astype('float32')\nx = t % 3600"),
}
HEALTHY = {
    "differences-of-something-else": script(
        "level = torch.as_tensor(log.time_of, dtype=torch.float32)\ngaps = level.diff(dim=1)"
    ),
    "offset-before": script("t = (timestamps - timestamps[0]).float()\nphase = t % 300"),
    "offset-before-in-place": script("ts -= START\nt = ts.astype(np.float32)\ngaps = np.diff(t)"),
    "float64": script("t = timestamps.double()\nphase = (t % 300).float()"),
    "features-after": script("x = np.sin(2 * np.pi * timestamps / 300).astype(np.float32)\ngaps = np.diff(timestamps)"),
    "days": script("days = unix_seconds.float() / DAY\nweek = days % 7.0"),
    "long-periods": script("t = timestamps.float()\nhour = t % 86400"),
    "no-large-number": script("t = timestamps.float()\nphase = t % 300").replace("1_700_000_000", "0"),
    "a-table-of-small-times": script(TABLE + "\nbegan = time.time()").replace("1_700_000_000", "0"),
    "a-table-after-an-offset": script("records = [(t - rows[0][0], v) for t, v in rows]\n" + TABLE),
    "another-column": script(TABLE.replace("clock[", "level[")),
    "another-name": script("t = lengths.float()\nphase = t % 300"),
}

test_finds, test_leaves = cases_of("time-in-float32", SICK, HEALTHY)
