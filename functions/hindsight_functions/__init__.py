"""The deployable functions of Hindsight, one module each, and the local gateway that serves them all."""
