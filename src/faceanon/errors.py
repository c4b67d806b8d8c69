"""Errors as one line: what a user can mend, and what ends a run."""

import errno

NO_ROOM = {  # of an OSError
    errno.ENOSPC: "no space left on the disk",
    errno.EDQUOT: "the disk quota is used up",
    errno.EFBIG: "the file is larger than this process or file system may write",
}


class UserError(Exception):
    """A user's mistake; the message is one line: what is wrong, where, and what to do. The CLI exits with 2.

    Examples:
        >>> from faceanon.errors import UserError
        >>> from faceanon.models import read
        >>> try:
        ...     read("no/such/model")
        ... except UserError as error:
        ...     print(error)
        no model at no/such/model: give a folder that training exported, or a .ckpt file
    """


class NoRoomError(UserError):
    """The disk is full, or the user's share of it: whatever is written next fails as well."""


class RunError(Exception):
    """A run that failed or was stopped, through nobody's typing; one line, and the exit code that says which.

    Args:
        message: What happened, where, and what to do next.
        code: 1 failed; 130 and 143 stopped by Ctrl-C or SIGTERM, as shells count them.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code
