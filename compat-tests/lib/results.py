"""One line a result, as compat-tests/run reads them."""
import os
import sys
import traceback
import uuid

BOOTSTRAP = os.environ.get("BOOTSTRAP", "localhost:9092")
_failed = False


class Absent(Exception):
    """This client version does not have the feature."""


def unique(prefix):
    """A name that no other test uses."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}"


def check(client, feature, test):
    """Runs `test` and prints its result."""
    global _failed
    try:
        test()
        outcome, detail = "pass", ""
    except Absent as absent:
        outcome, detail = "absent", str(absent)
    except BaseException as error:  # a failing test must not hide the others
        traceback.print_exc(file=sys.stdout)
        outcome, detail = "fail", f"{type(error).__name__}: {error}".replace("\n", " ").replace("\t", " ")[:300]
        _failed = True
    print(f"RESULT\t{client}\t{feature}\t{outcome}\t{detail}", flush=True)


def expect(actual, expected, what="value"):
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def finish():
    sys.exit(1 if _failed else 0)
