"""Checks a release from a fresh clone: builds, reads and installs it as its users will. Run by ``make release-check``.

    python release/check.py [--final] [--out FOLDER] [--python PATH]...

Only what is committed is checked. ``--final`` also asks for the heading of this version in the changelog. The wheel,
the sdist and the SBOM are left in ``--out``. Exit status 0: everything passed; 1: something failed, and one line says
what. Nothing is uploaded and no tag is made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import changelog

ROOT = Path(__file__).parents[1]
STEP_S_MAX = 1200.0
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
SDIST_BYTES_MAX = 20 << 20
LOG = "step,loss,lr\n" + "".join(f"{step},{4.0 / (1 + step / 40):.5f},0.001\n" for step in range(400))
"""A healthy log; ``analyze`` ends with 0 for it."""

CORE = {"click", "jinja2", "markupsafe", "numpy", "rich", "markdown-it-py", "mdurl", "pygments", "safetensors", "tomli"}
"""What an install of the wheel may bring along, on any supported Python."""


class CheckError(Exception):
    """A check that did not pass, in one line."""


@dataclass(frozen=True)
class Work:
    """The folders of one check: the clone, the environment of the tools, and where the artefacts go."""

    clone: Path
    tools: Path
    folder: Path
    out: Path
    final: bool
    pythons: tuple[Path, ...]

    def tool(self, name: str) -> str:
        return str(self.tools / "bin" / name)

    @property
    def wheel(self) -> Path:
        (wheel,) = self.out.glob("*.whl")
        return wheel

    @property
    def version(self) -> str:
        return self.wheel.name.split("-")[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--final", action="store_true", help="the changelog must have a heading of this version")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "release")
    parser.add_argument(
        "--python", type=Path, action="append", default=[], help="interpreter to install the wheel with"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="release-check-") as name:
        folder = Path(name)
        shutil.rmtree(asked.out, ignore_errors=True)
        asked.out.mkdir(parents=True)
        pythons = tuple(asked.python) or _found_pythons()
        work = Work(folder / "clone", folder / "tools", folder, asked.out.absolute(), asked.final, pythons)
        return _all(work)


def _all(work: Work) -> int:
    failed = 0
    for check in CHECKS:
        what = (check.__doc__ or check.__name__).splitlines()[0].rstrip(".")
        try:
            said = check(work)
        except CheckError as error:
            failed += 1
            print(f"FAILED  {what}: {error}", flush=True)
            if check in NEEDED:
                break
        else:
            print(f"ok      {what}{f': {said}' if said else ''}", flush=True)
    print(f"{failed} failed" if failed else f"all {len(CHECKS)} checks passed; artefacts in {work.out}", flush=True)
    return 1 if failed else 0


# -- the checks, in their order ----------------------------------------------------------------------------------------


def fresh_clone(work: Work) -> str:
    """What is committed, cloned to an empty folder."""
    call("git", "clone", "--quiet", "--no-local", str(ROOT), str(work.clone))
    changed = call("git", "-C", str(ROOT), "status", "--porcelain").strip()
    commit = call("git", "-C", str(work.clone), "rev-parse", "--short", "HEAD").strip()
    return commit + (f" ({len(changed.splitlines())} uncommitted changes are not in it)" if changed else "")


def tools(work: Work) -> None:
    """The tools, in an environment of their own."""
    call(sys.executable, "-m", "venv", str(work.tools))
    call(work.tool("python"), "-m", "pip", "install", "-qq", "-r", str(work.clone / "release" / "requirements.txt"))


def builds(work: Work) -> str:
    """Two builds in different folders give the same bytes."""
    epoch = call("git", "-C", str(work.clone), "log", "-1", "--format=%ct").strip()
    first, second = work.folder / "first", work.folder / "second"
    for folder in (first, second):
        tree = work.folder / f"tree-{folder.name}"
        call("git", "clone", "--quiet", str(work.clone), str(tree))
        build = [work.tool("python"), "-m", "build", "--no-isolation", "--outdir", str(folder), str(tree)]
        call(*build, environment={"SOURCE_DATE_EPOCH": epoch}, umask=0o022 if folder is first else 0o077)
    names = sorted(path.name for path in first.iterdir())
    if names != sorted(path.name for path in second.iterdir()) or len(names) != 2:
        raise CheckError(f"expected one wheel and one sdist, got {names}")
    for name in names:
        if _digest(first / name) != _digest(second / name):
            raise CheckError(f"{name} differs between two builds of the same commit")
        shutil.copy(first / name, work.out)
    return ", ".join(f"{name} {_digest(work.out / name)[:12]}" for name in names)


def descriptions(work: Work) -> None:
    """Twine accepts the metadata and the description."""
    call(work.tool("twine"), "check", "--strict", *(str(path) for path in sorted(work.out.iterdir())))


def contents(work: Work) -> str:
    """The wheel holds the package, its types and its licence, and nothing else."""
    with zipfile.ZipFile(work.wheel) as wheel:
        names = wheel.namelist()
        metadata = wheel.read(f"steadytrain-{work.version}.dist-info/METADATA").decode()
    tops = {name.split("/")[0] for name in names} - {"steadytrain", f"steadytrain-{work.version}.dist-info"}
    if tops:
        raise CheckError(f"the wheel also holds {', '.join(sorted(tops))}")
    for needed in ("steadytrain/py.typed", f"steadytrain-{work.version}.dist-info/licenses/LICENSE"):
        if needed not in names:
            raise CheckError(f"the wheel has no {needed}")
    tracked = call("git", "-C", str(work.clone), "ls-files", "src/steadytrain").split()
    missing = {name.removeprefix("src/") for name in tracked} - set(names)
    if missing:
        raise CheckError(f"the wheel lacks {', '.join(sorted(missing)[:5])}")
    if re.search(r"^Requires-Dist: torch\b(?!.*extra ==)", metadata, re.M):
        raise CheckError("the wheel requires torch")
    (sdist,) = work.out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        members = len(archive.getnames())
    if sdist.stat().st_size > SDIST_BYTES_MAX:
        raise CheckError(f"the sdist has {sdist.stat().st_size:,} bytes; at most {SDIST_BYTES_MAX:,}")
    return f"{len(names)} files, {work.wheel.stat().st_size:,} bytes; sdist {members} files"


def versions(work: Work) -> str:
    """The version is the same in the metadata, the source and the changelog."""
    source = (work.clone / "src" / "steadytrain" / "core" / "version.py").read_text(encoding="utf-8")
    if f'__version__ = "{work.version}"' not in source:
        raise CheckError(f"core/version.py does not say {work.version}")
    log = changelog.read((work.clone / "CHANGELOG.md").read_text(encoding="utf-8"))
    if log.problems:
        raise CheckError(f"CHANGELOG.md {log.problems[0]}")
    newest = log.versions[0] if log.versions else None
    if newest == work.version:
        return work.version
    if work.final or (newest is not None and not log.has_unreleased):
        raise CheckError(f"the newest version in CHANGELOG.md is {newest}, the wheel is {work.version}")
    return f"{work.version}; in CHANGELOG.md it is still [Unreleased], which --final refuses"


def installs(work: Work) -> str:
    """The wheel installs without torch, and `steadytrain analyze LOG` runs."""
    if not work.pythons:
        raise CheckError("no interpreter found")
    log = work.folder / "log.csv"
    log.write_text(LOG, encoding="utf-8")
    seen = []
    for number, python in enumerate(work.pythons):
        place = work.folder / f"install-{number}"
        call(str(python), "-m", "venv", "--without-pip", str(place))
        pip = [work.tool("python"), "-m", "pip", "--python", str(place / "bin" / "python")]
        call(*pip, "install", "-qq", str(work.wheel))
        _uses(place / "bin", work.version, log)
        installed = {one["name"].lower() for one in json.loads(call(*pip, "list", "--format", "json"))}
        if installed - CORE - {"steadytrain", "typing-extensions"}:
            raise CheckError(f"an install brings along {', '.join(sorted(installed - CORE - {'steadytrain'}))}")
        seen.append(call(str(python), "-c", "import platform; print(platform.python_version())").strip())
    absent = [one for one in PYTHONS if not any(version.startswith(f"{one}.") for version in seen)]
    return f"Python {', '.join(seen)}" + (f"; not here, so not tried: {', '.join(absent)}" if absent else "")


def _uses(binaries: Path, version: str, log: Path) -> None:
    said = call(str(binaries / "steadytrain"), "--version").strip()
    if said != f"steadytrain, version {version}":
        raise CheckError(f"--version says {said!r}, the metadata {version}")
    call(str(binaries / "steadytrain"), "analyze", str(log), folder=log.parent)
    absent = subprocess.run([str(binaries / "python"), "-c", "import torch"], capture_output=True, check=False)
    if absent.returncode == 0:
        raise CheckError("torch is there: the environment is not a clean one")


def pipx(work: Work) -> None:
    """`pipx run steadytrain analyze LOG` runs."""
    own = {"PIPX_HOME": str(work.folder / "pipx"), "PIPX_BIN_DIR": str(work.folder / "pipx-bin")}
    line = [work.tool("pipx"), "run", "--python", sys.executable, "--spec", str(work.wheel), "steadytrain", "analyze"]
    call(*line, str(work.folder / "log.csv"), environment=own, folder=work.folder)


def bill_of_materials(work: Work) -> str:
    """The SBOM lists the wheel with its core dependencies, and nothing else."""
    out = work.out / f"steadytrain-{work.version}.cdx.json"
    python = work.folder / "install-0" / "bin" / "python"
    line = [work.tool("cyclonedx-py"), "environment", "--output-reproducible", "--of", "JSON", "-o", str(out)]
    call(*line, "--pyproject", str(work.clone / "pyproject.toml"), str(python))
    document = json.loads(out.read_text(encoding="utf-8"))
    named = {one["name"].lower() for one in document.get("components", [])} - {"steadytrain"}
    needed = CORE - {"tomli"}
    if not needed <= named | {"tomli"} or named - CORE - {"typing-extensions"}:
        raise CheckError(f"expected {', '.join(sorted(needed))}; got {', '.join(sorted(named))}")
    return f"{out.name}, CycloneDX {document['specVersion']}, {len(named)} dependencies"


def oldest_python(work: Work) -> None:
    """No name or syntax of a Python newer than 3.10 is used without a condition."""
    call(
        work.tool("vermin"),
        "--target=3.10-",
        "--no-tips",
        "--violations",
        "--backport",
        "typing_extensions",
        str(work.clone / "src"),
    )


CHECKS: tuple[Callable[[Work], str | None], ...] = (
    *(fresh_clone, tools, builds, descriptions, contents, versions, installs, pipx),
    *(bill_of_materials, oldest_python),
)
NEEDED = (fresh_clone, tools, builds)
"""Without these there is nothing to check."""


def call(*line: str, environment: Mapping[str, str] = {}, folder: Path | None = None, umask: int = -1) -> str:
    """Run a program and return its output.

    Raises:
        CheckError: it ends with another status than 0, or takes too long.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("STEADYTRAIN", "PYTHONPATH"))}
    try:
        done = subprocess.run(
            line,
            env={**kept, "PIP_DISABLE_PIP_VERSION_CHECK": "1", **environment},
            cwd=folder or tempfile.gettempdir(),
            capture_output=True,
            text=True,
            timeout=STEP_S_MAX,
            umask=umask,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CheckError(f"{Path(line[0]).name}: {error}") from None
    if done.returncode != 0:
        last = ((done.stderr.strip() or done.stdout.strip()).splitlines() or ["no output"])[-1]
        raise CheckError(f"`{' '.join([Path(line[0]).name, *line[1:4]])}` ended with {done.returncode}: {last}")
    return done.stdout


def _found_pythons() -> tuple[Path, ...]:
    """The interpreters of the supported versions that are here: on the path, or of pyenv."""
    found = []
    for version in PYTHONS:
        pyenv = sorted(
            Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*/bin/python")
        )
        on_path = shutil.which(f"python{version}")
        for python in filter(None, [on_path, *pyenv]):
            if _runs(str(python)):
                found.append(Path(python))
                break
    return tuple(found)


def _runs(python: str) -> bool:
    """Whether it is an interpreter that works: a shim of pyenv is there without one."""
    line: Sequence[str] = [python, "-c", "import venv"]
    return subprocess.run(line, capture_output=True, check=False).returncode == 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
