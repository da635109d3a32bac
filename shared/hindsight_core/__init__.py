"""The core of Hindsight: what a memory is and what happens to it.

Nothing here imports a web framework, and no vendor's driver is imported before it is configured.
"""

import logging

# Events go where a program sends them, and nowhere by themselves: what matters to a caller is in the answers.
logging.getLogger("hindsight").addHandler(logging.NullHandler())
