"""Starts the program that this package brings. Graphs run in the interpreter that it is installed for, unless another is named."""
import os
import subprocess
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "understudy" + (".exe" if os.name == "nt" else ""))
    os.environ.setdefault("UNDERSTUDY_PYTHON", sys.executable)
    if os.name != "nt":
        os.execv(program, ["understudy", *sys.argv[1:]])
    child = subprocess.Popen([program, *sys.argv[1:]])
    while True:
        try:
            sys.exit(child.wait())
        except KeyboardInterrupt:
            pass  # the program gets it too, and ends in order


if __name__ == "__main__":
    main()
