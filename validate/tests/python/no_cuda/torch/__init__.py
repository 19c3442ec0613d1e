"""Stands in for a torch that finds no device."""

__version__ = "2.11.0+cpu"


class cuda:
    @staticmethod
    def is_available():
        return False
