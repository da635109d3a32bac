"""A Dockerfile as its targets: what each is made of, in order, with what it inherits from other stages."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


class Target:
    """One stage with the instructions of those it is built from."""

    def __init__(self, steps: list[tuple[str, str]]) -> None:
        self.steps = steps

    def all(self, name: str) -> list[str]:
        return [text for instruction, text in self.steps if instruction == name]

    def last(self, name: str) -> str:
        """What counts where an instruction stands several times."""
        return (self.all(name) or [""])[-1]

    @property
    def command(self) -> list[str]:
        """The program and its arguments."""
        return [*json.loads(self.last("ENTRYPOINT") or "[]"), *json.loads(self.last("CMD") or "[]")]

    @property
    def installs(self) -> list[str]:
        """The shell commands that install packages, without what concerns Docker alone."""
        steps = [step for step in self.all("RUN") if "pip install" in step]
        return [re.sub(r"--mount=\S+\s+", "", step).split("&&")[0].strip() for step in steps]

    @property
    def extras(self) -> set[str]:
        return {
            extra for step in self.installs for found in re.findall(r"\[(.*?)\]", step) for extra in found.split(",")
        }


def targets() -> dict[str, Target]:
    """Every stage of deploy/Dockerfile by its name."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "deploy" / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    found: dict[str, Target] = {}
    steps: list[tuple[str, str]] = []
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.strip().partition(" ")
        if instruction == "FROM":
            base, _, name = rest.partition(" AS ")
            steps = list(found[base].steps) if base in found else []
            found[name] = Target(steps)
        if instruction:
            steps.append((instruction, rest.strip()))
    return found
