"""``python -m oxyfuel script.py ...``: a program as it is, its torch.compile replaced by
oxyfuel.compile."""

import sys

from oxyfuel.run_script import replace_torch_compile, run_module, run_path

USAGE = """usage: python -m oxyfuel SCRIPT [ARGUMENT ...]
       python -m oxyfuel -m MODULE [ARGUMENT ...]

Runs a program with torch.compile, torch.nn.Module.compile included, replaced by oxyfuel.compile."""


def main(arguments: list[str]) -> None:
    """Runs what the arguments name; ends as it ends."""
    if arguments[:1] in (["-h"], ["--help"]):
        print(USAGE)
        return
    of_module = arguments[:1] == ["-m"]
    named = arguments[of_module:]
    if not named or (not of_module and named[0].startswith("-")):
        sys.exit(USAGE)
    replace_torch_compile()
    (run_module if of_module else run_path)(named[0], named[1:])


if __name__ == "__main__":
    main(sys.argv[1:])
