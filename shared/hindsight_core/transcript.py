"""Questions that are a piece of a conversation: what in it the user said."""

from __future__ import annotations

import re

_LABEL = re.compile(
    r"^\s*(?P<open>[<\[【]\s{0,9})?(?P<name>[^\W\d_][\w .'’-]{0,30}?)(?(open)\s{0,9}[>\]】])\s{0,9}[:：](?!//)\s*"
)
_OTHERS = re.compile(
    r"(?:the )?(?:ai|assistant|bot|chatbot|agent|model|gpt|chatgpt|claude|system|tool|function)"
    r"|(?:智能|聊天)?(?:助手|助理|机器人)|系统|工具",
    re.IGNORECASE,
)
_QUOTES = '"“”„«»「」'


def said_by_user(text: str) -> str:
    """The lines of a labelled conversation that are not the assistant's, without labels; any other text as it is.

    What the assistant said answers or repeats, and draws the search to itself. A text is a conversation when it has
    several lines, begins with a label (`Ann: …`, `<user>: …`, 用户：…) and at least half of its lines have one; a line
    without one goes on with what the line before it says. Where nobody but the assistant speaks, all of it counts.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    labels = [_LABEL.match(line) for line in lines]
    if len(lines) < 2 or labels[0] is None or 2 * sum(label is not None for label in labels) < len(lines):
        return text
    said: list[str] = []
    theirs = True
    for line, label in zip(lines, labels, strict=True):
        if label is not None:
            theirs = _OTHERS.fullmatch(label["name"].strip()) is None
            line = line[label.end() :]
        if theirs:
            said.append(line.strip().strip(_QUOTES).strip())
    return "\n".join(said).strip() or text
