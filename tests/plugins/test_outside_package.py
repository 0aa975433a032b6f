"""A package of somebody else, installed by pip, brings a plug-in of each kind; each is found where its kind works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import WAIT_S_MAX, write

SOURCE = Path(__file__).parents[1] / "fixtures" / "outside_package"
BROUGHT = (
    *("loud-loss", "spoiled-file", "without-the-file", "copy-the-file", "wide-layers", "shouting"),
    *("tally", "verse", "diary", "tiny-trainer"),
)
REFUSED = (
    "old-loss = outsider.loud_loss:OldLoss: written for version 0 of the plug-in API; this steadytrain has version 1"
)
TRAINING = """
    import torch

    torch.manual_seed(0)
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def train():
        for step in range(40):
            x = torch.randn(8, 16)
            loss = (model(x) - 2000.0).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
"""
SPOILED = """
    import torch
    from torch import nn

    torch.manual_seed(264)
    torch.set_num_threads(1)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for step in range(40):
        inputs = torch.randn(32, 8)  # only step 9 has a number above 4
        loss = ((model(inputs) - 1.0) * (4.0 - inputs.amax(1, keepdim=True)).log()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which pip has installed the package, without a network."""
    folder = tmp_path_factory.mktemp("outside")
    shutil.copytree(SOURCE, folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps"]
    command = [*pip, "--no-build-isolation", "--target", str(folder / "site"), str(folder / "source")]
    subprocess.run(command, check=True, timeout=WAIT_S_MAX)
    return folder / "site"


def run(installed: Path, folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run Python with the package on its path; its exit status is ``status``."""
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(installed)]))
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=WAIT_S_MAX)
    assert done.returncode == status, done.stdout + done.stderr
    return done


def test_explain_knows_them_and_names_the_one_that_is_refused(installed: Path, tmp_path: Path) -> None:
    listed = run(installed, tmp_path, "-m", "steadytrain", "explain")
    assert [name for name in BROUGHT if f"\n{name} " not in listed.stdout] == []
    assert REFUSED in listed.stderr
    document = json.loads(run(installed, tmp_path, "-m", "steadytrain", "explain", "--json").stdout)
    assert [plugin["entry_point"] for plugin in document["broken"]] == ["old-loss = outsider.loud_loss:OldLoss"]


PAGES = {
    "loud-loss": "loss_max = 1000.0: chosen for a test.",
    "spoiled-file": "- copy the file again (trial without-the-file)",
    "without-the-file": "- one batch does the harm (data)",
    "copy-the-file": "- spoiled-file: copy the file again (rung 4, trial without-the-file)",
    "wide-layers": "Cost: free",
    "shouting": "Write these rows in small letters.",
    "tiny-trainer": "Use: from outsider.tiny_trainer import fit",
}


def test_explain_prints_their_pages_without_torch(installed: Path, tmp_path: Path) -> None:
    program = (
        "import sys\nsys.modules['torch'] = None\nfrom steadytrain.cli.explain import command\n"
        "for name in sys.argv[1:]:\n    command([name], standalone_mode=False)\n    print('== end of the page ==')"
    )
    *pages, _ = run(installed, tmp_path, "-c", program, *PAGES).stdout.split("== end of the page ==")
    for page, (name, part) in zip(pages, PAGES.items(), strict=True):
        assert part in page, name


def test_the_generated_docs_have_them_where_they_are_asked_for(installed: Path, tmp_path: Path) -> None:
    run(installed, tmp_path, "-m", "steadytrain.cli._catalogues", ".", "--outside")
    written = "".join(path.read_text() for path in tmp_path.glob("*.md"))
    assert [name for name in BROUGHT if f"\n## {name}\n" not in written] == []
    run(installed, tmp_path, "-m", "steadytrain.cli._catalogues", ".")
    assert "## loud-loss" not in (tmp_path / "symptoms.md").read_text()


def test_analyze_reads_its_logs_and_its_detector_looks(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "run.tally").write_text("tally\n" + "2.0\n" * 300 + "5000.0\n")
    document = json.loads(run(installed, tmp_path, "-m", "steadytrain", "analyze", "--json", "run.tally").stdout)
    assert '"tally"' in json.dumps(document)
    assert '"loud-loss"' in json.dumps(document)


def test_check_data_reads_its_format_and_runs_its_check(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "works.poem").write_text("a small verse\n\nA LOUD ONE\n\nanother small one")
    done = run(installed, tmp_path, "-m", "steadytrain", "check-data", "--json", "works.poem", status=1)
    document = json.loads(done.stdout)
    assert (document["kind"], document["rows"]) == ("verse", 3)
    (found,) = [finding for finding in document["findings"] if finding["check"] == "shouting"]
    assert (found["status"], found["message"]) == ("fail", "1 rows shout")


@pytest.mark.slow
def test_a_run_has_its_symptom_and_goes_to_its_exporter(installed: Path, tmp_path: Path) -> None:
    script = write(tmp_path, TRAINING + "\n    train()\n")
    options = ["--runs-dir", "runs", "--name", "run", "--to", "diary"]
    done = run(installed, tmp_path, "-m", "steadytrain", "run", *options, script)
    assert "loud-loss" in done.stderr
    assert REFUSED.partition(": ")[2] in done.stderr
    diary = (tmp_path / "runs" / "run" / "diary.txt").read_text().splitlines()
    assert len([line for line in diary if line[0].isdigit()]) == 40
    assert "symptom loud-loss" in diary
    assert diary[-1] == "finished"
    done = run(installed, tmp_path, "-m", "steadytrain", "export", "--runs-dir", "runs", "run")
    assert "diary: page run -> " in done.stdout
    documents = (tmp_path / "runs" / "run" / "documents.txt").read_text()
    assert documents.startswith("page run report.html")


@pytest.mark.long
@pytest.mark.slow
def test_a_diagnosis_weighs_its_cause_runs_its_trial_and_offers_its_intervention(
    installed: Path, tmp_path: Path
) -> None:
    steady = ("-m", "steadytrain")
    run(installed, tmp_path, *steady, "run", "--runs-dir", "runs", "--name", "run", write(tmp_path, SPOILED), status=70)
    done = run(installed, tmp_path, *steady, "diagnose", "run", "--runs-dir", "runs", "--json", "--workers", "1")
    document = json.loads(done.stdout)
    assert (document["verdict"], document["status"]) == ("spoiled-file", "confirmed")
    assert {row["trial"]: row["effect"] for row in document["trials"]}["without-the-file"] == "removed"
    (offered,) = document["diagnoses"][0]["interventions"]
    assert (offered["name"], offered["tried"]) == ("copy-the-file", "removed")


@pytest.mark.long
@pytest.mark.slow
def test_preflight_runs_its_check(installed: Path, tmp_path: Path) -> None:
    script = write(tmp_path, TRAINING + "\n    train()\n")
    done = run(installed, tmp_path, "-m", "steadytrain", "preflight", "--checks", "wide-layers", script, status=1)
    assert "weight is wide in torch" in done.stdout
    assert "Make the layer narrower." in done.stdout


@pytest.mark.long
@pytest.mark.slow
def test_its_integration_watches_a_training(installed: Path, tmp_path: Path) -> None:
    call = "\n    from outsider.tiny_trainer import fit\n    fit(train, runs_dir='runs', name='fit')\n"
    run(installed, tmp_path, write(tmp_path, TRAINING + call))
    assert (tmp_path / "runs" / "fit").is_dir()
