"""The results of `python -m benchmarks` as tables, for a terminal and for the documentation.

`python -m benchmarks.simulator.report out/bench/bench.json --name amd-avx2` keeps these results as
docs/bench/amd-avx2.json, and writes the tables of all results in docs/bench between
`<!-- bench:begin -->` and `<!-- bench:end -->` in docs/performance.md and README.md.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.simulator.workloads import TARGETS
from benchmarks.tables import Table, duration, headline, rewrite

PICTURE = "bench-scaling.png"
KEPT = ROOT / "docs" / "bench"  # results by processor
_WHAT = {
    "ds": "PDG-DS",
    "autodiff": "PDG-DS, loss by autodiff",
    "lazy": "PDG-NDS lazy to PDG-DS",
    "square": "PDG-NDS square to PDG-DS",
}
_BUSY = 0.02  # the part of the time that other processes may take from a measurement


def targets(workloads: dict[str, Any]) -> list[dict[str, Any]]:
    """The targets of the measured workloads, each with the measured ratio."""
    found: list[dict[str, Any]] = []
    for (name, what), most in TARGETS.items():
        ratio = workloads.get(name, {}).get("one_core", {}).get("ratios", {}).get(what)
        if ratio is not None:
            value = ratio["median"]
            ok = value <= most
            found.append({"workload": name, "what": what, "most": most, "ratio": value, "ok": ok})
    return found


def summary(results: dict[str, Any]) -> list[Table]:
    """The table of the targets."""
    cells = {(t["workload"], t["what"]): t for t in results["targets"]}
    columns = [what for what in _WHAT if any(w == what for _, w in cells)]
    rows = [
        [name, *(_target(cells.get((name, what))) for what in columns)]
        for name in results["workloads"]
    ]
    if not columns:
        return []
    return [Table("Ratios, one core; C limit = 1", ["", *(_WHAT[c] for c in columns)], rows)]


def tables(results: dict[str, Any]) -> list[Table]:
    found: list[Table] = []
    workloads = results["workloads"]
    if workloads:
        found += [_times(workloads), _costs(workloads)]
        if any("two_cores" in cores for cores in workloads.values()):
            found.append(_two_cores(workloads))
    found += [_peers(size, rows) for size, rows in results["peers"].items() if rows]
    found.append(
        Table(
            "Starting",
            ["", "seconds"],
            [
                ["`import hushgrad`", f"{results['import_seconds']['hushgrad']:.3f}"],
                ["Python itself", f"{results['import_seconds']['python']:.3f}"],
                ["`hushgrad run`, 5 agents, 1000 iterations", f"{results['study_seconds']:.2f}"],
            ],
        )
    )
    return found


def notes(results: dict[str, Any]) -> list[str]:
    """Remarks that a reader of the tables needs."""
    found = [f"skipped {reason}" for reason in results["skipped"]]
    for name, cores in results["workloads"].items():
        for where, result in cores.items():
            for what, check in result["agreement"].items():
                if not check["ok"]:
                    apart = check["difference"]
                    found.append(
                        f"WRONG: {name} ({where}, {what}) is "
                        f"{'NaN' if apart is None else format(apart, '.1e')} from the C limit "
                        f"after {check['iterations']} iterations."
                    )
            if (result["stolen"] or 0) > _BUSY:
                found.append(
                    f"busy: other processes had {result['stolen']:.0%} of the core of {name}; "
                    "measure again on a quiet machine."
                )
    for size, rows in results["peers"].items():
        found += [f"WRONG: {r['name']} ends elsewhere at {size}." for r in rows if not r["agrees"]]
    return found


def text(results: dict[str, Any]) -> str:
    shown = [*summary(results), *tables(results)]
    parts = [headline(results), *(table.text() for table in shown), *notes(results)]
    return "\n\n".join(parts)


def processors(every: dict[str, dict[str, Any]]) -> Table:
    """The targets on all processors; `every` has the results by name."""
    titles = [f"{r['machine']['cpu']}, {r['machine']['instructions']}" for r in every.values()]
    found = [
        {(t["workload"], t["what"]): t for t in results["targets"]} for results in every.values()
    ]
    rows = [
        [f"{workload}, {_WHAT[what]}", *(_target(cells.get((workload, what))) for cells in found)]
        for workload, what in TARGETS
    ]
    return Table("Ratios, one core; C limit of the same processor = 1", ["", *titles], rows)


def markdown(every: dict[str, dict[str, Any]], *, is_short: bool) -> str:
    parts = [processors(every).markdown()]
    for name, results in every.items():
        if is_short:
            break
        parts += [f"### `{name}.json`", headline(results)]
        parts += [table.markdown() for table in tables(results)]
        parts += [note for note in notes(results) if not note.startswith("skipped")]
        if results["scaling"]:
            parts.append(f"![Time and memory of an iteration as sizes grow](images/{PICTURE})")
    return "\n\n".join(parts)


def _target(cell: dict[str, Any] | None) -> str:
    if cell is None:
        return "–"
    return f"{cell['ratio']:.2f} {'≤' if cell['ok'] else 'MISSED:'} {cell['most']:g}"


def _times(workloads: dict[str, Any]) -> Table:
    rows: list[list[str]] = []
    for name, cores in workloads.items():
        one = cores["one_core"]
        for title, times in one["times"].items():
            role, form = title.split()
            if role != "engine":
                continue
            limit = one["times"].get(f"limit {'ds' if form == 'autodiff' else form}")
            per = times["seconds_per_iteration"] / one["trials"]
            floor = limit["seconds_per_iteration"] / one["trials"] if limit else None
            ratio = one["ratios"].get(form if form in ("ds", "autodiff") else f"{form} to limit")
            rows.append([
                name,
                {"ds": "PDG-DS", "autodiff": "PDG-DS, autodiff"}.get(form, f"PDG-NDS {form}"),
                "–" if floor is None else duration(floor),
                duration(per),
                f"{1 / per:,.0f}".replace(",", " "),
                "–" if ratio is None else
                f"{ratio['median']:.2f} ({ratio['least']:.2f} … {ratio['most']:.2f})",
            ])  # fmt: skip
    header = ["", "", "C limit", "hushgrad", "iterations/s", "ratio (least … most)"]
    return Table("Time per iteration (b: per iteration and trial), one core", header, rows)


def _two_cores(workloads: dict[str, Any]) -> Table:
    rows: list[list[str]] = []
    for name, cores in workloads.items():
        two = cores.get("two_cores")
        if two is None:
            continue
        times, ratio = two["times"], two["ratios"].get("ds")
        per = {t: v["seconds_per_iteration"] / two["trials"] for t, v in times.items()}
        rows.append([
            name,
            duration(per["limit ds"]) if "limit ds" in per else "–",
            duration(per["engine ds"]),
            "–" if ratio is None else f"{ratio['median']:.2f}",
        ])  # fmt: skip
    header = ["", "C limit, two threads", "hushgrad", "ratio"]
    return Table("PDG-DS on two cores", header, rows)


def _costs(workloads: dict[str, Any]) -> Table:
    rows: list[list[str]] = []
    for name, cores in workloads.items():
        one = cores["one_core"]
        rows.append([
            name,
            one["title"],
            f"{one['setup_seconds']:.2f} s",
            f"{one['compile_seconds']:.2f} s",
            f"{one['memory']['peak_mb']:.0f} MB",
            f"{one['memory']['engine_mb']:.0f} MB",
        ])  # fmt: skip
    header = ["", "", "set-up", "compile", "peak memory", "of that, engine"]
    return Table("What a run costs besides (PDG-DS)", header, rows)


def _peers(size: str, rows: list[dict[str, Any]]) -> Table:
    fastest = rows[0]["seconds_per_iteration"]
    shown = [
        [
            f"{row['name']} {row['version']}",
            duration(row["seconds_per_iteration"]),
            f"{row['iterations_per_second']:,.0f}".replace(",", " "),
            _factor(row["seconds_per_iteration"] / fastest),
        ]
        for row in rows
    ]
    header = ["", "per iteration", "iterations/s", "times the fastest"]
    return Table(f"DGD at size {size}, one core", header, shown)


def _factor(ratio: float) -> str:
    return f"{ratio:.3g}" if ratio < 100 else f"{ratio:,.0f}".replace(",", " ")


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulator.report")
    parser.add_argument("file", type=Path, nargs="?", help="results to keep under --name")
    parser.add_argument("--name", help="of their file in docs/bench, as amd-avx2")
    options = parser.parse_args(arguments)
    if (options.file is None) != (options.name is None):
        parser.error("results are kept by their file and --name; without both, pages are rewritten")
    if options.file is not None:
        shutil.copyfile(options.file, KEPT / f"{options.name}.json")
        picture = options.file.with_name(PICTURE)
        if picture.exists():
            shutil.copyfile(picture, ROOT / "docs" / "images" / PICTURE)
    every = {
        file.stem: json.loads(file.read_text(encoding="utf-8"))
        for file in sorted(KEPT.glob("*.json"))
    }
    for page, is_short in (("docs/performance.md", False), ("README.md", True)):
        done = rewrite(ROOT / page, markdown(every, is_short=is_short))
        print(
            f"{page}: {'written' if done else 'has no <!-- bench:begin --> … <!-- bench:end -->'}"
        )


if __name__ == "__main__":
    main()
