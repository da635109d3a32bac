"""Commands that make the weights which the package ships. They need nothing but what the package itself needs.

`python -m hindsight_core.training` runs them all; the pair reader alone needs torch, and is trained by
`training/reader.py` of the repository.
"""
