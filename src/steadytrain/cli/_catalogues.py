"""The catalogues of all kinds of plug-ins: what ``steadytrain explain`` lists, and the generated pages of ``docs``.

``python -m steadytrain.cli._catalogues docs`` (``make docs``) writes these pages anew.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from steadytrain.core.plugin_pages import Pages

COMMAND = "make docs"


def catalogues() -> tuple[Pages, ...]:
    """The kinds in the order in which they are listed."""
    from steadytrain.checks.data.data_check import DATA_CHECK_PAGES
    from steadytrain.checks.subject.model_check import CHECK_PAGES
    from steadytrain.detectors import SYMPTOM_PAGES
    from steadytrain.diagnosis.cause_catalog import CAUSE_PAGES

    return SYMPTOM_PAGES, CAUSE_PAGES, CHECK_PAGES, DATA_CHECK_PAGES


def documents() -> Mapping[str, str]:
    """The generated pages of ``docs`` by their file names."""
    files = {"symptoms": "symptoms", "causes": "causes", "checks": "checks", "data_checks": "data-checks"}
    return {f"{files[pages.key]}.md": pages.markdown(command=COMMAND) for pages in catalogues()}


if __name__ == "__main__":
    for name, text in documents().items():
        Path(sys.argv[1], name).write_text(text, encoding="utf-8")
