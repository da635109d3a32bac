"""`python -m hindsight_core.cli`."""

from __future__ import annotations

from hindsight_core.cli import main

main()
