"""The command that changes the embedding model of a store while it is used: reembed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from hindsight_core.cli import tables
from hindsight_core.cli.commands import command
from hindsight_core.cli.files import progress_bar
from hindsight_core.cli.target import Target
from hindsight_core.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hindsight_core.models import Memory
    from hindsight_core.stores import Record


@command("reembed")
async def reembed(
    target: Target,
    keep_old: Annotated[
        bool,
        typer.Option(
            "--keep-old",
            help="Leave an OpenSearch's index with the old vectors: texts that are erased later stay in it.",
        ),
    ] = False,
) -> None:
    """Give all memories of a store vectors of HINDSIGHT_EMBEDDER, while those who use it go on with the old model.

    Broken off, it goes on where it was when it is run again. In the end the new vectors take the place of the old ones,
    and every process with the old model is refused: restart it with the new one. With the model that a store has
    it only deletes what is left of others.
    """
    if target.url is not None:
        raise InvalidInput.of("--url", "a server's memories get new vectors where they are; run this on its machine")
    # Here, so that commands which ask a server load no model and no store.
    from hindsight_core.assembly import embedder_of
    from hindsight_core.passages import Passages
    from hindsight_core.stores import open_store

    settings = target.settings()
    embedder = embedder_of(settings)
    store = open_store(settings.store, cache_bytes=settings.cache_mb << 20)
    try:
        # A model that is calibrated while starting has its name only then.
        await embedder.embed([], "passage")
        await store.prepare(None)

        async def embed(memories: Sequence[Memory]) -> list[Record]:
            return await Passages(embedder).records(memories)

        with progress_bar() as progress:
            bar = progress.add_task("memories", total=None)
            count = await store.reembed(
                embedder.identity.name,
                embed,
                lambda done, total: progress.update(bar, completed=done, total=total),
                keep_old=keep_old,
            )
    finally:
        await store.aclose()
        await embedder.aclose()
    if target.as_json:
        tables.say_json({"embedded": count, "embedding_model": embedder.identity.name})
        return
    tables.console().print(f"{count} memories embedded; all vectors are those of {embedder.identity.name}.")
