"""Runs as `python -c` with the name of a package: reads its modules from the socket, imports them from memory, and calls its main."""
import importlib
import importlib.machinery
import json
import os
import socket
import sys

# The error of the packages on older ones, a SyntaxError, does not name the cause.
if sys.version_info < (3, 10):
    sys.exit("langgraph needs Python 3.10 or later, and this is %d.%d.%d" % sys.version_info[:3])
FD = 3
PACKAGE = sys.argv.pop(1)


def connect():
    """The server's socket is inherited. Where processes cannot inherit one, it listens on this machine, and both sides prove who they are."""
    server = json.loads(os.environ["UNDERSTUDY_WORKER"]).get("server")
    if server is None:
        return socket.socket(fileno=FD)
    sock = socket.create_connection(("127.0.0.1", server["port"]))
    sock.sendall(server["secret"].encode())
    # What comes next is executed: it must not be from a process that got the port of a server that has ended.
    if read(sock, len(server["answer"])) != server["answer"].encode():
        os._exit(1)
    return sock


def read(sock, size):
    parts = []
    while size > 0:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            os._exit(0)  # the server is gone
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


class Modules:
    """Finder and loader. get_source lets tracebacks show lines of modules that have no file."""

    def __init__(self, sources):
        self.sources = {PACKAGE if name == "__init__" else f"{PACKAGE}.{name}": text for name, text in sources.items()}

    def find_spec(self, name, path=None, target=None):
        if name not in self.sources:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=self.get_filename(name), is_package=name == PACKAGE)

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        exec(self.get_code(module.__name__), module.__dict__)

    def get_code(self, name):
        return compile(self.sources[name], self.get_filename(name), "exec", dont_inherit=True)

    def get_filename(self, name):
        return f"<understudy>/{name.replace('.', '/')}.py"

    def get_source(self, name):
        return self.sources[name]

    def is_package(self, name):
        return name == PACKAGE


server = connect()
sys.meta_path.insert(0, Modules(json.loads(read(server, int.from_bytes(read(server, 4), "big")))))
importlib.import_module(f"{PACKAGE}.__main__").main(server)
