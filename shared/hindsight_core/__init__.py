"""The core of Hindsight: what a memory is and what happens to it.

Nothing here imports a web framework, and no vendor's driver is imported before it is configured.
"""
