"""Word lists and patterns, as data: one folder a language."""
