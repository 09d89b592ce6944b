"""Steps of a script: each is a claim about a running server that must hold.

A script registers functions with `@step` and ends with `main(Subject)`; the subject is made from the command line and given to
every step. Prints one `ok` line per step; exits 1 on the first that does not hold. Nothing is expected of a model's words, only
that they agree with each other and keep to the form that was asked for.
"""

import sys
import traceback

STEPS = []


def step(function):
    """Registers a step; its name is the claim."""
    STEPS.append(function)
    return function


def raised(error, call):
    """The error of this class that `call` raises."""
    try:
        call()
    except error as refusal:
        return refusal
    raise AssertionError(f"{error.__name__} was not raised")


def main(subject, package):
    """Runs the steps on `subject(BASE_URL, MODEL, *more)`."""
    import importlib.metadata

    talk = subject(*sys.argv[1:])
    print(f"{package} {importlib.metadata.version(package)}")
    for function in STEPS:
        claim = function.__name__.replace("_", " ")
        try:
            function(talk)
        except Exception as failure:  # any failure of a step is a finding
            print(f"FAILED {claim}: {type(failure).__name__}: {failure}")
            traceback.print_exc()
            sys.exit(1)
        print(f"ok {claim}", flush=True)
