"""The CI examples of docs/guides/ci.md and docs/gate.md do what the pages say: their steps run as written, on a healthy
script and on one that is stopped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ci_steps import FROM_HERE, GITHUB, GITLAB, Job, Step, jobs, run_job
from doc_blocks import ROOT, blocks, pages
from doc_running import environment
from doc_stages import prepare

GUIDE = ROOT / "docs" / "guides" / "ci.md"
STATUS_OF_A_STOP = 70


def examples(page: Path) -> list[Job]:
    return [job for block in blocks(page) if block.directives.get("as") == "steps" for job in jobs(block.text)]


def bash(here: Path, said: list[str], script: str, variables: Mapping[str, str] | None = None) -> int:
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script],
        cwd=here,
        env={**environment(here), **(variables or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    said.append(f"$ {script}\n{done.stdout}-> {done.returncode}\n")
    return done.returncode


def folder(tmp_path: Path, stage: str) -> Path:
    here = tmp_path / "project"
    here.mkdir()
    prepare(here, stage, lambda command, status: None)
    return here


def done(job: Job, here: Path) -> tuple[int, str]:
    """The status of the job and all that it printed; each file that it uploads must be there."""
    said: list[str] = []
    status = run_job(job, partial(bash, here, said))
    assert [kept for kept in job.kept if not (here / kept).exists()] == [], "".join(said)
    return status, "".join(said)


def failures(here: Path) -> int:
    return len(list(ElementTree.parse(here / "gate.xml").getroot().iter("failure")))


SYSTEMS = {"github": GITHUB, "gitlab": GITLAB}


def of(system: str) -> Job:
    (job,) = [job for job in examples(GUIDE) if job.variables == SYSTEMS[system]]
    return job


def test_the_guide_has_one_job_of_each_system_that_installs_runs_judges_and_keeps() -> None:
    for system in SYSTEMS:
        job = of(system)
        script = "\n".join(step.script for step in job.steps)
        for words in ('pip install torch "$STEADYTRAIN"', "steadytrain preflight", "steadytrain run --name"):
            assert script.count(words) == 1
        assert "gate.xml" in job.kept
        assert any(kept.startswith("steadytrain-runs/") for kept in job.kept)


def test_each_page_with_ci_steps_is_run_here() -> None:
    assert {page.name for page in pages() if examples(page)} == {"ci.md", "gate.md"}


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_healthy_script_passes(system: str, tmp_path: Path) -> None:
    here = folder(tmp_path, "script")
    status, said = done(of(system), here)
    assert status == 0, said
    assert failures(here) == 0
    assert "gate passed: 1 of 1 runs passed" in said
    assert "::error" not in said


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
def test_a_script_that_is_stopped_fails_its_job_with_reasons(system: str, tmp_path: Path) -> None:
    here = folder(tmp_path, "broken")
    job = of(system)
    light = Job(job.name, tuple(map(_without_preflight, job.steps)), job.kept, job.variables)
    status, said = done(light, here)
    assert status == (STATUS_OF_A_STOP if system == "github" else 1), said
    assert failures(here) > 0
    assert "gate FAILED: 0 of 1 runs passed" in said
    assert ("::error" in said) == (system == "github")
    assert "FAIL" in (here / "gate.md").read_text(encoding="utf-8").upper()
    if system == "github":
        assert json.loads((here / "gate.sarif").read_text(encoding="utf-8"))["runs"][0]["results"]


def _without_preflight(step: Step) -> Step:
    """The healthy script has shown that step; here it would cost half of the time."""
    lines = [line for line in step.script.splitlines() if "steadytrain preflight" not in line]
    return Step("\n".join(lines) or "true", step.always)


@pytest.mark.slow
def test_the_steps_on_the_page_of_the_gate_pass(tmp_path: Path) -> None:
    here = folder(tmp_path, "script")
    page = ROOT / "docs" / "gate.md"
    for block in blocks(page):
        if "file" in block.directives:
            (here / block.directives["file"]).write_text(block.text, encoding="utf-8")
    for job in examples(page):
        status, said = done(job, here)
        assert status == 0, said


def test_a_step_ends_at_its_first_failure_and_what_always_runs_runs(tmp_path: Path) -> None:
    text = """
        jobs:
          one:
            steps:
              - uses: actions/checkout@v4
              - run: |
                  echo first
                  false
                  echo never
              - run: echo nor this
              - if: always()
                run: echo last; exit 3
        """
    (job,) = jobs(text)
    said: list[str] = []
    assert run_job(job, partial(bash, tmp_path, said)) == 1
    printed = [line for line in "".join(said).splitlines() if line in ("first", "never", "nor this", "last")]
    assert printed == ["first", "last"]


def test_only_the_install_from_the_index_is_replaced() -> None:
    ran: list[str] = []
    steps = (Step('pip install torch "$STEADYTRAIN"'), Step("pip install -r requirements.txt"))
    run_job(Job("x", steps, (), {}), lambda script, variables: ran.append(script) or 0)  # type: ignore[func-returns-value]
    assert ran == [FROM_HERE, "pip install -r requirements.txt"]
