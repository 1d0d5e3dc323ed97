"""The parts of the demo; ``demo/run.py`` puts them together."""
