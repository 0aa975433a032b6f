"""``steadytrain.gate``: pass or fail for CI, from what was recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadytrain.core.errors import UsageError
from steadytrain.experiments.command_results import results_of
from steadytrain.gate.judging import judge_run
from steadytrain.gate.policy import GatePolicy, read_policy
from steadytrain.gate.recorded import Done, Recorded, of_log, of_run
from steadytrain.gate.result import GateResult
from steadytrain.logs import Columns, find_logs
from steadytrain.method.evidence import preflight_of
from steadytrain.method.ticks import checklist_of
from steadytrain.storage.bundle import is_bundle
from steadytrain.storage.run_folder import RUN_FILE, Run, open_run
from steadytrain.storage.run_search import RUNS_DIR_DEFAULT, find


def gate(
    *targets: str | Path | Run,
    policy: str | Path | GatePolicy | None = None,
    reference: Sequence[str | Path | Run] = (),
    runs_dir: str | Path = RUNS_DIR_DEFAULT,
) -> GateResult:
    """Judge runs and logs against a policy: pass or fail, with reasons. Needs no PyTorch and launches nothing.

    Args:
        targets: run folders, names of runs, or logs (``docs/analyze.md`` lists the formats).
        policy: a TOML file (``docs/gate.md``), a policy, or None for the defaults: no critical symptom, no warning that
            states what the script does, no confirmed cause, no loss that is NaN or Inf, no action that changed the run,
            and the run finished.
        reference: runs or logs that differ only by their seed, at least three. The mean loss (and gradient norm, if all
            have it) of the last steps that all reached must not lie above what one more such run shows.
        runs_dir: folder of run folders.

    Returns:
        ``passed``, and for each run the checks with their reasons.

    Raises:
        UsageError: a target or policy does not exist or cannot be read, or the policy contradicts itself.

    Examples:
        >>> result = steadytrain.gate("losses.csv")
        >>> result.passed
        False
        >>> [check.name for check in result.runs[0].checks if check.status == "fail"]
        ['symptoms', 'nonfinite-losses']
    """
    if not targets:
        raise UsageError("gate: name at least one run or log")
    rules = policy if isinstance(policy, GatePolicy) else GatePolicy() if policy is None else read_policy(Path(policy))
    runs, unreadable = _read(targets, Path(runs_dir), rules)
    references, unread = _read(reference, Path(runs_dir), GatePolicy())
    if unread:
        raise UsageError(unread[0])
    judged = {run.path.resolve() for run in runs}
    for one in references:
        if one.path.resolve() in judged:
            raise UsageError(f"{one.path}: is judged, so it cannot be its own reference")
    return GateResult(
        policy=rules.name,
        references=tuple(one.name for one in references),
        runs=tuple(judge_run(run, rules, references) for run in runs),
        unreadable=tuple(unreadable),
    )


def _read(targets: Sequence[str | Path | Run], runs_dir: Path, policy: GatePolicy) -> tuple[list[Recorded], list[str]]:
    """The runs of all targets, each once, and the logs of folders that could not be read."""
    found: dict[tuple[Path, str], Recorded] = {}
    unreadable: list[str] = []
    for target in targets:
        path = target.path if isinstance(target, Run) else _path_of(target, runs_dir)
        if (path / RUN_FILE).is_file():
            recorded = [_run(path, policy)]
        else:
            logs = find_logs(path, Columns())
            unreadable += logs.skipped
            folders = dict.fromkeys(log.source for log in logs.logs if (log.source / RUN_FILE).is_file())
            recorded = [_run(folder, policy) for folder in folders]
            recorded += [of_log(log) for log in logs.logs if log.source not in folders]
        for one in recorded:
            found.setdefault((one.path.resolve(), one.name), one)
    return list(found.values()), unreadable


def _path_of(target: str | Path, runs_dir: Path) -> Path:
    """A run folder or a log; a bundle is neither.

    Raises:
        UsageError: there is no such run or log.
    """
    path = Path(target)
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        try:
            path = find(str(target), runs_dir)
        except UsageError as error:
            more = "; a script that trained nothing, or whose run folder could not be made, leaves none"
            raise UsageError(f"{error}{more if 'no such run' in str(error) else ''}") from None
    if is_bundle(path):
        raise UsageError(f"{path}: an incident; a gate takes runs and logs")
    return path


def _run(path: Path, policy: GatePolicy) -> Recorded:
    run = open_run(path)
    ticks = checklist_of(path).ticks if policy.checklist else ()
    checks = preflight_of(run).get("checks", ()) if policy.preflight else ()
    return of_run(
        run,
        checklist=[Done(tick.title, not tick.is_open, tick.command or "; ".join(tick.evidence)) for tick in ticks],
        preflight=[_preflight(check) for check in checks],
        data=_data(path) if policy.data else (),
    )


def _preflight(check: dict[str, object]) -> Done:
    """A check that warns or did not apply is no failure; one without a known status is unknown."""
    status = check.get("status")
    done = {"fail": False, "pass": True, "warn": True, "not-run": True}.get(str(status))
    return Done(str(check.get("name")), True if check.get("known") else done, str(check.get("message") or status))


def _data(path: Path) -> list[Done]:
    """The results that ``check-data --keep-with`` kept. A warning passes, as in a preflight."""
    known = {"fail": False, "pass": True, "warn": True}
    kept = [one for name, one in results_of(path).items() if name.startswith("check-data ")]
    return [Done(one.command, known.get(one.effect), one.what) for one in kept]
