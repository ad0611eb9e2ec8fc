"""`hushgrad sbom`: what is installed here, as a bill of materials."""

from __future__ import annotations

import re
import uuid
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from hushgrad.cli.terminal import print_json

EPILOG = """
[bold]Example[/bold]

hushgrad sbom > sbom.json
"""
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_SPECIFICATION = "1.5"  # of CycloneDX


def sbom() -> None:
    """Print what is installed: hushgrad and every package that it needs, in CycloneDX's JSON.

    Names, versions, licences and dependencies come from the packages' own metadata, as they are
    installed here; packages of extras are left out. Nothing is looked up on the network.
    """
    print_json(bill("hushgrad"))


def bill(root: str) -> dict[str, Any]:
    """The bill of a package and of all that it needs."""
    found: dict[str, metadata.Distribution] = {}
    needs: dict[str, list[str]] = {}
    left = [root]
    while left:
        name = left.pop(0)
        if name in found:
            continue
        try:
            found[name] = metadata.distribution(name)
        except metadata.PackageNotFoundError:  # of another platform or Python
            continue
        needs[name] = sorted({_normal(r) for r in found[name].requires or [] if _is_needed(r)})
        left += needs[name]
    parts = {name: _component(name, one) for name, one in sorted(found.items())}
    parts[root]["type"] = "application"
    return {
        "bomFormat": "CycloneDX",
        "specVersion": _SPECIFICATION,
        "serialNumber": f"urn:uuid:{uuid.uuid4()}",
        "version": 1,
        "metadata": {
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "component": parts.pop(root),
        },
        "components": list(parts.values()),
        "dependencies": [
            {
                "ref": _purl(name, one),
                "dependsOn": [_purl(n, found[n]) for n in needs[name] if n in found],
            }
            for name, one in sorted(found.items())
        ],
    }


def _normal(requirement: str) -> str:
    """The normal form of the name in a requirement (PEP 503)."""
    match = _NAME.match(requirement)
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else requirement


def _is_needed(requirement: str) -> bool:
    return "extra ==" not in requirement.partition(";")[2]


def _purl(name: str, one: metadata.Distribution) -> str:
    return f"pkg:pypi/{name}@{one.version}"


def _component(name: str, one: metadata.Distribution) -> dict[str, Any]:
    licence = _licence(one)
    return {
        "type": "library",
        "bom-ref": _purl(name, one),
        "name": name,
        "version": one.version,
        "purl": _purl(name, one),
        **({"licenses": [licence]} if licence else {}),
    }


def _licence(one: metadata.Distribution) -> dict[str, Any] | None:
    about = one.metadata
    if (expression := about.get("License-Expression")) is not None:
        return {"expression": expression}
    named = [c.rpartition(" :: ")[2] for c in about.get_all("Classifier", []) if "License ::" in c]
    text = named[0] if named else (about.get("License") or "").partition("\n")[0]
    return {"license": {"name": text}} if text else None
