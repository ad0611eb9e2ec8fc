"""Pages of HTML that need nothing else: no network, no script. Audits, fits and dossiers use it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files


def stylesheet(package: str, name: str) -> str:
    """A style sheet that lies in a package."""
    return files(package).joinpath(name).read_text(encoding="utf-8")


def html_page(title: str, body: Iterable[str], style: str = "") -> str:
    """The whole text of a page; `style` comes after the common style."""
    common = stylesheet("hushgrad.files", "page.css")
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{common}{style}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def html_table(
    heads: Sequence[str], rows: Iterable[Sequence[object]], *, kind: str = "", raw: bool = False
) -> str:
    """A table whose first cell of a row is its name; `raw`: cells are HTML already."""
    text = str if raw else (lambda cell: escape(str(cell)))
    top = "".join(f"<th scope=col>{escape(head)}</th>" for head in heads)
    lines = "".join(
        f"<tr><th scope=row>{text(row[0])}</th>"
        + "".join(f"<td>{text(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    of_kind = f' class="{kind}"' if kind else ""
    head = f"<thead><tr>{top}</tr></thead>" if any(heads) else ""
    return f'<div class="wide"><table{of_kind}>{head}<tbody>{lines}</tbody></table></div>'
