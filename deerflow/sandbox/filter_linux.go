//go:build amd64 || arm64

package sandbox

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// forbidden are system calls that no command needs, and that lead out of a sandbox or deep into the kernel: other namespaces and roots, mounts, files by handle,
// programs in the kernel, its keys, clock and names, and descriptors of other processes.
var forbidden = []uint32{
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_OPEN_TREE, unix.SYS_MOVE_MOUNT, unix.SYS_FSOPEN,
	unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_QUOTACTL, unix.SYS_QUOTACTL_FD, unix.SYS_ACCT,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_PIDFD_GETFD, unix.SYS_KCMP,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD, unix.SYS_REBOOT,
	unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_KEYCTL, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME, unix.SYS_CLOCK_ADJTIME, unix.SYS_ADJTIMEX,
	unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_VHANGUP,
}

// namespaces are flags of clone that make namespaces.
const namespaces = unix.CLONE_NEWNS | unix.CLONE_NEWCGROUP | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC | unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET

// x32 is set in the numbers of a second set of system calls on amd64.
const x32 = 0x40000000

// architecture is that of this program as the kernel names it.
var architecture = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}[runtime.GOARCH]

// Offsets in the kernel's seccomp_data. Arguments have 64 bits; both machines have the lower half first.
const (
	dataNumber = 0
	dataArch   = 4
	dataArgs   = 16
)

// filter is the program that judges system calls. What it forbids includes changes of the limit that is the mark of a command.
func filter() []unix.SockFilter {
	const (
		allow  = unix.SECCOMP_RET_ALLOW
		refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// when skips the next instruction unless a comparison holds.
	when := func(op uint16, k uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, Jf: 1, K: k}
	}
	skip := func(op uint16, k uint32, yes, no uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_K | op, Jt: yes, Jf: no, K: k}
	}
	result := func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }

	p := []unix.SockFilter{
		load(dataArch), skip(unix.BPF_JEQ, architecture, 1, 0), result(refuse), // programs of another architecture have other numbers
		load(dataNumber), when(unix.BPF_JGE, x32), result(refuse),
		when(unix.BPF_JEQ, unix.SYS_CLONE3), result(absent), // its flags are in memory; callers fall back to clone
	}
	for _, n := range forbidden {
		p = append(p, when(unix.BPF_JEQ, n), result(refuse))
	}
	p = append(p,
		skip(unix.BPF_JEQ, unix.SYS_CLONE, 0, 4),
		load(dataArgs), when(unix.BPF_JSET, namespaces), result(refuse), result(allow),
		skip(unix.BPF_JEQ, unix.SYS_SETRLIMIT, 0, 4),
		load(dataArgs), when(unix.BPF_JEQ, markLimit), result(refuse), result(allow),
		skip(unix.BPF_JEQ, unix.SYS_PRLIMIT64, 0, 8),
		load(dataArgs+8), skip(unix.BPF_JEQ, markLimit, 1, 0), result(allow),
		load(dataArgs+16), skip(unix.BPF_JEQ, 0, 0, 2), // reading is allowed
		load(dataArgs+20), skip(unix.BPF_JEQ, 0, 1, 0), result(refuse),
	)
	return append(p, result(allow))
}

// restrictCalls makes the filter count for this thread and what it starts.
func restrictCalls() error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	program := filter()
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&fprog))); errno != 0 {
		return os.NewSyscallError("seccomp", errno)
	}
	return nil
}

// filters reports whether the kernel has filters of system calls.
func filters() bool {
	action := uint32(unix.SECCOMP_RET_ERRNO)
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_GET_ACTION_AVAIL, 0, uintptr(unsafe.Pointer(&action)))
	return errno == 0
}
