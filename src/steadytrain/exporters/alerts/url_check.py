"""Whether Apprise can use addresses: asked in a process of its own before the script starts, so that its libraries do
not enter the process that trains. The addresses go through a pipe, never through a command line.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence

from steadytrain.core.errors import UsageError
from steadytrain.storage.redaction import redact_text

CHECK_S_MAX = 60.0


def refuse_bad_urls(urls: Sequence[str], environment: Mapping[str, str], where: str = "--notify") -> str:
    """Check that each address, which was given in ``where``, is one of a service that Apprise knows. Returns why that
    could not be asked, "" if it was.

    Raises:
        UsageError: one is not. The message holds no part of it but its scheme.
    """
    try:
        asked = subprocess.run(
            [sys.executable, "-m", __name__],
            input=json.dumps(list(urls)),
            capture_output=True,
            text=True,
            env=dict(environment),
            timeout=CHECK_S_MAX,
        )
        why = json.loads(asked.stdout) if asked.returncode == 0 else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        return type(error).__name__
    if why is None:
        return f"the check ended with status {asked.returncode}"
    if why:
        raise UsageError(f"{where} {why}")
    return ""


def main() -> int:
    """Read addresses from stdin; write why the first bad one is bad, "" if all are good."""
    urls = json.load(sys.stdin)
    from steadytrain.exporters.alerts.services import Service

    why = ""
    for url in urls:
        try:
            Service(url)
        except ValueError as error:
            why = why or redact_text(str(error))
    sys.stdout.write(json.dumps(why))
    return 0


if __name__ == "__main__":
    sys.exit(main())
