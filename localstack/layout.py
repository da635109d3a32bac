"""Lays out a real OpenSearch with its k-NN plugin from Maven's repositories, once, in a cache outside the checkout.

Maven's own settings decide where the artifacts come from. What is laid out is read only afterwards: each node keeps
its data, temporary files and settings elsewhere, so any number of nodes share one layout.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

OPENSEARCH = "2.19.6"
KNN = f"{OPENSEARCH}.0"
JAVA = 17
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_LAUNCHER = Path(__file__).parent / "opensearch" / "Launcher.java"

_HOW_TO_INSTALL = {
    "java": "apt-get install openjdk-17-jdk-headless, or brew install openjdk@17",
    "javac": "apt-get install openjdk-17-jdk-headless, or brew install openjdk@17",
    "mvn": "apt-get install maven, or brew install maven",
}


class LayoutError(Exception):
    """OpenSearch cannot be laid out or run on this machine; the message says what to install or to change."""


@dataclass(frozen=True)
class _Module:
    """A module of the distribution: its jars are published, its descriptor is not, so it is written here."""

    name: str
    classname: str
    artifacts: tuple[str, ...]
    extends: str = ""
    leave_out: tuple[str, ...] = ()

    @property
    def descriptor(self) -> str:
        lines = [
            f"name={self.name}",
            f"description={self.name}",
            f"version={OPENSEARCH}",
            f"opensearch.version={OPENSEARCH}",
            "java.version=11",
            f"classname={self.classname}",
            *([f"extended.plugins={self.extends}"] if self.extends else []),
        ]
        return "\n".join(lines) + "\n"


_SERVER = (
    f"org.opensearch:opensearch:{OPENSEARCH}",
    f"org.opensearch:opensearch-plugin-classloader:{OPENSEARCH}",
    # Optional in the server's pom, yet the node does not start without them.
    "org.apache.logging.log4j:log4j-core:2.25.4",
    "org.locationtech.spatial4j:spatial4j:0.7",
    "org.locationtech.jts:jts-core:1.15.0",
)
_SPI = "opensearch-scripting-painless-spi"
_MODULES = (
    _Module(
        "lang-painless",
        "org.opensearch.painless.PainlessPlugin",
        (f"org.opensearch.plugin:lang-painless:{OPENSEARCH}", f"org.opensearch.plugin:{_SPI}:{OPENSEARCH}"),
    ),
    _Module(
        "transport-netty4",
        "org.opensearch.transport.Netty4Plugin",
        (f"org.opensearch.plugin:transport-netty4-client:{OPENSEARCH}",),
    ),
    _Module(
        "analysis-common",
        "org.opensearch.analysis.common.CommonAnalysisPlugin",
        (f"org.opensearch.plugin:analysis-common:{OPENSEARCH}",),
        extends="lang-painless",
        leave_out=(_SPI,),  # comes with lang-painless; the same class twice is refused as "jar hell"
    ),
    _Module(
        "mapper-extras",  # rank_features
        "org.opensearch.index.mapper.MapperExtrasPlugin",
        (f"org.opensearch.plugin:mapper-extras-client:{OPENSEARCH}",),
    ),
    _Module(
        "reindex",  # delete_by_query, update_by_query
        "org.opensearch.index.reindex.ReindexPlugin",
        (f"org.opensearch.plugin:reindex-client:{OPENSEARCH}",),
    ),
)
_KNN_PLUGIN = f"org.opensearch.plugin:opensearch-knn:{KNN}:zip"

_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss.SSS} %-5p %c{1.} %m%n
logger.dangling.name = org.opensearch.gateway.DanglingIndicesState
logger.dangling.level = error
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


def _pom(name: str, artifacts: tuple[str, ...], *, children: tuple[str, ...] = (), alone: bool = False) -> str:
    """A pom whose only purpose is to have its dependencies copied; `alone` leaves out what they depend on."""
    dependencies: list[str] = []
    for artifact in artifacts:
        group, artifact_id, version, *kind = artifact.split(":")
        dependencies.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact_id}</artifactId>"
            f"<version>{version}</version>{f'<type>{kind[0]}</type>' if kind else ''}</dependency>"
        )
    modules = "".join(f"<module>{child}</module>" for child in children)
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        f"<groupId>hindsight.localstack</groupId><artifactId>{name}</artifactId><version>1</version>"
        f"<packaging>pom</packaging><properties><excludeTransitive>{str(alone).lower()}</excludeTransitive>"
        f"</properties><modules>{modules}</modules><dependencies>{''.join(dependencies)}</dependencies></project>\n"
    )


def _poms() -> dict[str, str]:
    """Every pom of the one Maven run, by its folder; the first is the parent that lists the others."""
    poms = {"server": _pom("server", _SERVER), "knn": _pom("knn", (_KNN_PLUGIN,), alone=True)}
    poms |= {module.name: _pom(module.name, module.artifacts) for module in _MODULES}
    return {".": _pom("layout", (), children=tuple(poms)), **poms}


def recipe() -> str:
    """Sixteen hexadecimal digits that change whenever what is laid out would change."""
    parts = [*_poms().values(), *(module.descriptor + repr(module.leave_out) for module in _MODULES)]
    return hashlib.sha256("\0".join([*parts, _LOGGING, _COPY, _LAUNCHER.read_text()]).encode()).hexdigest()[:16]


def cache_directory() -> Path:
    """`HINDSIGHT_STACK_CACHE` if set, else `hindsight/opensearch-<version>` in the user's cache directory."""
    if chosen := os.environ.get("HINDSIGHT_STACK_CACHE"):
        return Path(chosen).expanduser().absolute()
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "hindsight" / f"opensearch-{OPENSEARCH}"


def tool(name: str) -> str:
    """The path of `java`, `javac` or `mvn`: that of `JAVA_HOME`, else of `PATH`. `LayoutError` when it is absent."""
    home = os.environ.get("JAVA_HOME")
    found = (shutil.which(name, path=str(Path(home) / "bin")) if home else None) or shutil.which(name)
    if found is None:
        raise LayoutError(f"OpenSearch needs `{name}`, which is not installed. Install it: {_HOW_TO_INSTALL[name]}.")
    return found


def java() -> tuple[str, int]:
    """The Java that runs the node, and its feature version. `LayoutError` if it is absent or older than 17."""
    path = tool("java")
    said = subprocess.run(  # noqa: S603  found by its fixed name
        [path, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    ).stdout
    version = re.search(r'version "(?:1\.)?(\d+)', said)
    if version is None:
        raise LayoutError(f"`{path} -version` gives no version. Install a JDK: {_HOW_TO_INSTALL['java']}.")
    feature = int(version[1])
    if feature < JAVA:
        raise LayoutError(f"OpenSearch needs Java {JAVA} or newer, {path} is {feature}: {_HOW_TO_INSTALL['java']}.")
    return path, feature


def missing_tools() -> str:
    """Why OpenSearch cannot run here, as one sentence with the remedy; empty when nothing is missing."""
    try:
        java()
        if not (cache_directory() / recipe()).is_dir():
            tool("javac")
            tool("mvn")
    except LayoutError as error:
        return str(error)
    return ""


def lay_out() -> Path:
    """The home of a complete layout: the cached one, or one made now (about half a minute when nothing is cached).

    Any number of processes may ask at once: one makes it, the others wait for it, none ever sees half of it.
    `LayoutError` when a tool is missing or Maven cannot fetch what is needed.
    """
    base = cache_directory()
    home = base / recipe()
    if home.is_dir():
        return home
    java()
    tool("javac")
    tool("mvn")
    base.mkdir(parents=True, exist_ok=True)
    with (base / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if home.is_dir():
            return home
        for abandoned in base.glob(".building-*"):  # by a process that was killed: the lock is ours
            shutil.rmtree(abandoned)
        sys.stderr.write(f"Laying out OpenSearch {OPENSEARCH} in {home} (once) ...\n")
        building = base / f".building-{home.name}"
        _build(building)
        building.replace(home)
    return home


def _build(home: Path) -> None:
    work = home / "work"
    for folder, pom in _poms().items():
        (work / folder).mkdir(parents=True, exist_ok=True)
        (work / folder / "pom.xml").write_text(pom)
    _run([tool("mvn"), "-q", "-B", "-Dstyle.color=never", "-f", str(work / "pom.xml"), _COPY, "-DincludeScope=runtime"])

    library = home / "lib"
    (work / "server" / "target" / "dependency").replace(library)
    for module in _MODULES:
        target = home / "modules" / module.name
        target.mkdir(parents=True)
        for jar in (work / module.name / "target" / "dependency").glob("*.jar"):
            if not (library / jar.name).exists() and not jar.name.startswith(module.leave_out):
                jar.replace(target / jar.name)
        (target / "plugin-descriptor.properties").write_text(module.descriptor)
    (plugin,) = (work / "knn" / "target" / "dependency").glob("*.zip")
    with zipfile.ZipFile(plugin) as archive:
        archive.extractall(home / "plugins" / "opensearch-knn")

    (home / "config").mkdir()
    (home / "config" / "opensearch.yml").touch()
    (home / "config" / "log4j2.properties").write_text(_LOGGING)
    launcher = home / "launcher"
    _run([tool("javac"), "--release", str(JAVA), "-cp", str(library / "*"), "-d", str(launcher), str(_LAUNCHER)])
    shutil.rmtree(work)


def _run(command: list[str]) -> None:
    done = subprocess.run(  # noqa: S603  Maven and the compiler, with arguments of this module
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.strip().splitlines()[:8])
        raise LayoutError(f"Laying out OpenSearch failed ({Path(command[0]).name}, exit {done.returncode}):\n{tail}")
