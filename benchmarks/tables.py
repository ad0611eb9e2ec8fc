"""Tables for a terminal and for a page of the documentation; both benchmarks use them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Table:
    title: str
    header: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[c]) for line in lines) for c in range(len(self.header))]
        shown = ["  ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True))
                 for line in lines]  # fmt: skip
        return "\n".join([self.title, *(f"  {line}".rstrip() for line in shown)])

    def markdown(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        rows = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{rows}"


def headline(results: dict[str, Any]) -> str:
    m = results["machine"]
    return (
        f"{m['cpu']} with {m['instructions']}, {m['cores']} cores, {m['memory_gb']} GB, "
        f"{m['system']}, Python {m['python']}, jax {m['jax']}, numpy {m['numpy']}; "
        f"hushgrad {m['hushgrad']}, {results['date'][:10]}."
    )


def duration(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def rewrite(path: Path, block: str, mark: str = "bench") -> bool:
    """Put the block between the marks of a page; False if the page has no marks."""
    page = path.read_text(encoding="utf-8")
    between = re.compile(rf"(<!-- {mark}:begin -->\n).*?(<!-- {mark}:end -->)", re.DOTALL)
    if not between.search(page):
        return False
    page = between.sub(lambda marks: f"{marks[1]}{block}\n{marks[2]}", page)
    path.write_text(page, encoding="utf-8")
    return True
