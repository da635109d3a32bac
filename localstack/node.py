"""A real OpenSearch node with k-NN: `python -m localstack.node --port 9200`.

The first run lays it out (see `layout`), every run starts it on the loopback address with its own data directory,
says when it is ready, and ends it cleanly on Ctrl-C or SIGTERM. Data survive a restart.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from localstack.layout import LayoutError, java, lay_out
from localstack.service import Service, ServiceError
from localstack.supervision import supervise

_VECTOR_API_SINCE = 21  # from here on Lucene computes vector distances with the CPU's vector instructions


def opensearch(
    port: int, data: Path, *, heap: str = "512m", short_lived: bool = False, port_setting: str = ""
) -> Service:
    """An OpenSearch node on `127.0.0.1:port` that keeps everything it writes under `data`.

    Lays OpenSearch out if needed, which takes about half a minute; `LayoutError` when that is not possible.
    `heap` is the size of the Java heap; resident memory is about 400 MB with the default. `short_lived` is for tests:
    it starts in half the time and never gets as fast as it could.
    """
    home = lay_out()
    executable, feature = java()
    data = data.absolute()
    temporary = data / "tmp"
    temporary.mkdir(parents=True, exist_ok=True)
    settings = {
        "cluster.name": "hindsight-local",
        "path.data": data / "nodes",
        "path.logs": data / "logs",
        "network.host": "127.0.0.1",
        "http.port": port,
        "transport.port": 0,  # any free one: nothing joins this node
        "discovery.type": "single-node",
        # A nearly full disk is the developer's business, not a reason to refuse writes in a test.
        "cluster.routing.allocation.disk.threshold_enabled": "false",
    }
    url = f"http://127.0.0.1:{port}"
    return Service(
        name="opensearch",
        command=(
            executable,
            f"-Xms{heap}",
            f"-Xmx{heap}",
            "-Xss1m",
            *(("-XX:TieredStopAtLevel=1",) if short_lived else ()),
            "-XX:+UseSerialGC",
            f"-Djava.io.tmpdir={temporary}",
            f"-Djna.tmpdir={temporary}",
            "-Djna.nosys=true",
            "-Dfile.encoding=UTF-8",
            "-Djava.locale.providers=SPI,CLDR",
            "-Dio.netty.noUnsafe=true",
            "-Dio.netty.noKeySetOptimization=true",
            "-Dio.netty.recycler.maxCapacityPerThread=0",
            "-Dio.netty.allocator.numDirectArenas=0",
            "-Dlog4j.shutdownHookEnabled=false",
            "-Dlog4j2.disable.jmx=true",
            *(("--add-modules", "jdk.incubator.vector") if feature >= _VECTOR_API_SINCE else ()),
            "-cp",
            f"{home}/lib/*:{home}/launcher",
            "Launcher",
            str(home),
            *(f"{name}={value}" for name, value in settings.items()),
        ),
        url=url,
        health=f"{url}/_cluster/health?wait_for_status=yellow&timeout=1s",
        port_setting=port_setting,
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m localstack.node", description="Run one OpenSearch node.")
    parser.add_argument("--port", type=int, default=9200, help="where it listens on 127.0.0.1 (default 9200)")
    parser.add_argument("--data", type=Path, default=Path(".stack/opensearch"), help="where it keeps its data")
    parser.add_argument("--heap", default="512m", help="the Java heap (default 512m)")
    parser.add_argument("--layout-only", action="store_true", help="lay OpenSearch out, print where, start nothing")
    options = parser.parse_args()
    try:
        if options.layout_only:
            sys.stdout.write(f"{lay_out()}\n")
            return 0
        return supervise((opensearch(options.port, options.data, heap=options.heap, port_setting="--port"),))
    except (LayoutError, ServiceError) as error:
        sys.stderr.write(f"{error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
