"""Errors that a user can mend."""


class UserError(Exception):
    """A user's mistake; the message is one line: what is wrong, where, and what to do. The CLI exits with 2."""
