"""`hushgrad key`: the key of an agent, and the certificates that it trusts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hushgrad.cli.options import Format, OutputFormat
from hushgrad.cli.terminal import print_json
from hushgrad.console import console, note, say
from hushgrad.errors import IdentityError, InputError
from hushgrad.files.atomic import create_file

if TYPE_CHECKING:
    from hushgrad.network.keys.identity import Certificate

COMMANDS = ("new", "show", "trust")
HELP = "Make an agent's key and certificate, show a certificate, trust a neighbour's."
EPILOG = """
[bold]Two organisations[/bold]

hushgrad key new north            at one, which sends north.crt to the other

hushgrad key show north.crt       at both, on the telephone

hushgrad key trust north.crt      at the other, once both read the same fingerprint
"""


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The agent's name: a-z, 0-9 and -, at most 63.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="DIR", help="Where to write the two files.")
    ] = Path(),
    days: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many days the certificate holds. Default: two years."
        ),
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Make NAME.key and NAME.crt for one agent.

    The key is this agent's alone (mode 0600, never sent to anyone). The certificate goes to its
    neighbours, by mail or any other way. Nobody needs to keep it secret, but both sides compare its
    fingerprint. A file that is there already is never overwritten.
    """
    from hushgrad.network.keys.identity import DAYS, mint

    identity = mint(out, name, days=DAYS if days is None else days)
    files = {"key": str(identity.key_path), "certificate": str(identity.certificate_path)}
    if output is Format.JSON:
        print_json(files | _document(identity.certificate))
        return
    _print(identity.certificate)
    note(f"wrote {files['key']}: it stays here, and is this agent's alone.")
    note(f"wrote {files['certificate']}: give it to the neighbours, and read them the fingerprint.")


def show(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A certificate, NAME.crt.")],
    output: OutputFormat = Format.TEXT,
) -> None:
    """Show whose a certificate is, its fingerprint and its dates."""
    from hushgrad.network.keys.identity import load_certificate

    certificate = load_certificate(file)
    if output is Format.JSON:
        print_json(_document(certificate))
    else:
        _print(certificate)


def trust(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The certificate that the neighbour sent.")
    ],
    fingerprint: Annotated[
        str | None,
        typer.Option(
            metavar="HEX",
            help="The fingerprint that its owner told you. Without it the command asks.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option("--as", metavar="NAME", help="Refuse a certificate with another name."),
    ] = None,
    into: Annotated[
        Path,
        typer.Option(
            "--into", metavar="DIR", help="The directory of trusted certificates, by agent.toml."
        ),
    ] = Path("trusted"),
    number: Annotated[
        int | None,
        typer.Option(min=0, metavar="N", help="The neighbour's number, for the printed lines."),
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where this agent dials the neighbour.")
    ] = None,
    output: OutputFormat = Format.TEXT,
) -> None:
    """Trust a neighbour's certificate, after its fingerprint was compared.

    The certificate is copied into the directory of trusted ones, and the lines for agent.toml are
    printed. A fingerprint counts only if it came another way than the file, such as by telephone.
    """
    from hushgrad.network.keys.identity import load_certificate

    certificate = load_certificate(file)
    if name is not None and name != certificate.name:
        raise IdentityError(
            f"'{file}' is the certificate of {certificate.name}, not of {name}. Nothing was "
            "trusted: ask for the right file."
        )
    if output is Format.TEXT and fingerprint is None:
        _print(certificate, stderr=True)
    _compare(certificate, fingerprint)
    if (objection := certificate.objection()) is not None:
        say("warning", f"the certificate of {certificate.name} {objection}.", "bold yellow")
    path = _keep(certificate, into)
    lines = _lines(certificate, path, number, address)
    if output is Format.JSON:
        print_json({"trusted": str(path), "toml": lines} | _document(certificate))
        return
    note(f"{path} is trusted. These lines belong into agent.toml:")
    typer.echo(lines)


def _compare(certificate: Certificate, fingerprint: str | None) -> None:
    """Go on only if the fingerprint is the one that the owner told."""
    if fingerprint is not None:
        if not certificate.is_fingerprint(fingerprint):
            raise IdentityError(
                f"the certificate's fingerprint is {certificate.fingerprint}, which is not the one "
                "that you gave. Someone may have exchanged the file: nothing was trusted."
            )
    elif not sys.stdin.isatty():
        raise InputError(
            "a fingerprint is compared before a certificate is trusted, and nobody can be asked "
            "here. Give the one that its owner told you with --fingerprint."
        )
    elif not typer.confirm("Did its owner tell you this fingerprint?", err=True):
        raise IdentityError("nothing was trusted.")


def _keep(certificate: Certificate, directory: Path) -> Path:
    """Put it among the trusted ones, where there is no other of that name."""
    from hushgrad.network.keys.identity import load_certificate

    path = directory / f"{certificate.name}.crt"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        create_file(path, certificate.pem.encode("ascii"))
    except FileExistsError:
        if load_certificate(path).der != certificate.der:
            raise IdentityError(
                f"'{path}' is another certificate of {certificate.name} and stays as it is. If "
                f"{certificate.name} has a new key, move the old file away first."
            ) from None
    except OSError as error:
        raise InputError(f"'{path}' cannot be written: {error.strerror}.") from error
    return path


def _lines(certificate: Certificate, path: Path, number: int | None, address: str | None) -> str:
    """The lines of agent.toml for this neighbour, and for the mask partner that it may be, too."""
    who = [
        f'name = "{certificate.name}"',
        "# number = its number" if number is None else f"number = {number}",
    ]
    where = '# address = "host:port", if this agent dials it'
    if address is not None:
        where = f'address = "{address}"'
    if path.parent != Path("trusted"):
        who.append(f'certificate = "{path}"')
    partner = [f"# {line.removeprefix('# ')}" for line in ["[[partner]]", *who]]
    mask = "# and, if it shares a mask with this agent, without the #:"
    return "\n".join(["[[neighbour]]", *who, where, mask, *partner])


def _document(certificate: Certificate) -> dict[str, Any]:
    return {
        "name": certificate.name,
        "fingerprint": certificate.fingerprint,
        "not_before": certificate.not_before.isoformat(),
        "not_after": certificate.not_after.isoformat(),
        "objection": certificate.objection(),
    }


def _print(certificate: Certificate, *, stderr: bool = False) -> None:
    from rich.text import Text

    half = len(certificate.fingerprint) // 2
    rows = {
        "name": certificate.name,
        "fingerprint": certificate.fingerprint[:half],
        "": certificate.fingerprint[half + 1 :],
        "valid": f"{certificate.not_before:%Y-%m-%d %H:%M} UTC to {certificate.not_after:%Y-%m-%d}",
    }
    if (objection := certificate.objection()) is not None:
        rows["but"] = f"it {objection}"
    for label, value in rows.items():
        line = Text.assemble((f"{label:<13}", "bold"), value)
        console(stderr=stderr).print(line, soft_wrap=True)
