"""The catalogues of all kinds of plug-ins: the lists of ``steadytrain explain``, and the generated pages of ``docs``.

``python -m steadytrain.cli._catalogues docs`` (``make docs``) regenerates these pages. With ``--outside`` they include
installed plug-ins of other packages.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from steadytrain.core.plugin_pages import Pages

COMMAND = "make docs"


def catalogues() -> tuple[Pages, ...]:
    """The kinds in display order."""
    from steadytrain.checks.data.data_check import DATA_CHECK_PAGES, DATA_FORMAT_PAGES
    from steadytrain.checks.subject.model_check import CHECK_PAGES
    from steadytrain.detectors import SYMPTOM_PAGES
    from steadytrain.diagnosis.cause_catalog import CAUSE_PAGES, INTERVENTION_PAGES
    from steadytrain.experiments.trial_catalog import TRIAL_PAGES
    from steadytrain.exporters.exporter import EXPORTER_PAGES
    from steadytrain.guard.intervention_pages import LIVE_INTERVENTION_PAGES
    from steadytrain.integrations import INTEGRATION_PAGES
    from steadytrain.logs.reader import LOG_READER_PAGES

    return (
        *(SYMPTOM_PAGES, CAUSE_PAGES, CHECK_PAGES, DATA_CHECK_PAGES),
        *(TRIAL_PAGES, INTERVENTION_PAGES, LIVE_INTERVENTION_PAGES),
        *(LOG_READER_PAGES, DATA_FORMAT_PAGES, EXPORTER_PAGES, INTEGRATION_PAGES),
    )


FILES: Mapping[str, str] = {
    "symptoms": "symptoms.md",
    "causes": "causes.md",
    "trials": "all-trials.md",
    "interventions": "interventions.md",
    "live_interventions": "live-interventions.md",
    "checks": "checks.md",
    "data_checks": "data-checks.md",
}
"""The file of each catalogue in ``docs``. The short ones share one file."""

SHARED_FILE = "formats-and-tools.md"


def documents(*, outside: bool = False) -> Mapping[str, str]:
    """The generated pages of ``docs`` by file name. ``outside`` adds the plug-ins of other packages."""
    texts: dict[str, list[str]] = {}
    for pages in catalogues():
        texts.setdefault(FILES.get(pages.key, SHARED_FILE), []).append(pages.markdown(command=COMMAND, outside=outside))
    return {name: "\n".join(parts) for name, parts in texts.items()}


if __name__ == "__main__":
    for name, text in documents(outside="--outside" in sys.argv).items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
