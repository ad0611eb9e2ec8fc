"""The results of `python -m benchmarks` as tables, for a terminal and for the documentation.

`python -m benchmarks.simulator.report out/bench/bench.json` writes the tables between
`<!-- bench:begin -->` and `<!-- bench:end -->` in docs/performance.md and README.md, and copies the
picture into docs/images.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

from benchmarks.machine import ROOT
from benchmarks.simulator.workloads import TARGETS
from benchmarks.tables import Table, duration, headline, rewrite

PICTURE = "bench-scaling.png"
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
    found = summary(results)
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
    parts = [headline(results), *(table.text() for table in tables(results)), *notes(results)]
    return "\n\n".join(parts)


def markdown(results: dict[str, Any], *, is_short: bool) -> str:
    chosen = summary(results) if is_short else tables(results)
    parts = [headline(results), *(table.markdown() for table in chosen)]
    if not is_short and results["scaling"]:
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


def main(file: Path) -> None:
    results = json.loads(file.read_text(encoding="utf-8"))
    for page, is_short in (("docs/performance.md", False), ("README.md", True)):
        done = rewrite(ROOT / page, markdown(results, is_short=is_short))
        print(
            f"{page}: {'written' if done else 'has no <!-- bench:begin --> … <!-- bench:end -->'}"
        )
    shutil.copyfile(file, ROOT / "docs" / "bench.json")  # the source of the pages' figures
    picture = file.with_name(PICTURE)
    if picture.exists():
        shutil.copyfile(picture, ROOT / "docs" / "images" / PICTURE)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "out" / "bench" / "bench.json"))
