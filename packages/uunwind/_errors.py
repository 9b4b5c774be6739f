"""What goes wrong, as exceptions and warnings."""

from __future__ import annotations


class Error(RuntimeError):
    """Something of uu could not be done. The text says what, and what to do."""


class LibraryError(Error):
    """libuunwind cannot be used: it is missing, of another version, or this is not Linux."""


class RecordError(Error):
    """A recording did not begin, or failed. The text says why."""


class LabelWarning(RuntimeWarning):
    """A label was left out: the samples do not have it, and the program goes on."""
