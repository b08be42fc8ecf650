"""The one error for input from outside: a trace, a scenario, a profile, a result folder."""


class InputError(ValueError):
    """Something that a user gave is wrong.

    The message is one line: it names the file and the row or key, says what is wrong and what
    would be right. The command line prints it and exits with code 2.
    """
