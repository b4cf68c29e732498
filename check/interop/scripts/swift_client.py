"""What the scripts for Swift have in common: a look at failures."""

from swiftclient.exceptions import ClientException


def status(call, *arguments, **named):
    """The status with which a call fails."""
    try:
        call(*arguments, **named)
    except ClientException as e:
        return e.http_status
    raise AssertionError(f"{call} did not fail")
