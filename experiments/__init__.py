"""Experiments: what memory and time really are, measured beside what kvreport computes.

Each module ``e1`` to ``e7`` is one experiment. Models are built from configs with random weights:
the shapes are exact, the memory is real, nothing is downloaded. ``python -m experiments --help``
lists the commands; ``experiments/README.md`` says what each experiment asks.
"""
