//go:build unix

package child

import (
	"os"
	"syscall"
)

// family is the process group of a worker.
type family int

func familyOf(p *os.Process) family { return family(p.Pid) }

func (f family) kill() { _ = syscall.Kill(-int(f), syscall.SIGKILL) }

func (family) close() {}

func socketpair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, nil, err
	}
	for _, fd := range fds {
		syscall.CloseOnExec(fd)
		// Larger than the default, so that a burst of events is one write.
		_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_SNDBUF, 1<<20)
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "server"), nil
}
