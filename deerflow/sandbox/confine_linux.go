package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// landlockLevel returns the version of the kernel's Landlock; 0 without it.
func landlockLevel() int {
	v, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0
	}
	return int(v)
}

// Rights of Landlock.
const (
	rightsRead  = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR | unix.LANDLOCK_ACCESS_FS_EXECUTE
	rightsWrite = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE | unix.LANDLOCK_ACCESS_FS_MAKE_CHAR |
		unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_MAKE_SOCK | unix.LANDLOCK_ACCESS_FS_MAKE_FIFO |
		unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK | unix.LANDLOCK_ACCESS_FS_MAKE_SYM
	// Those that a file, which is no folder, can have.
	rightsFile = unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
)

// readable are the parts of a system that programs need, in addition to files in /etc that everybody may read. Not among them: other folders of /etc,
// /home, /proc of processes, /run, /tmp, /var.
var readable = []string{
	"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr", "/opt", "/nix/store",
	"/etc/ld.so.conf.d", "/etc/alternatives", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/pki/ca-trust", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem",
	"/etc/pki/tls/openssl.cnf", "/etc/ca-certificates", "/etc/fonts", "/etc/python3", "/etc/terminfo", "/etc/profile.d",
	"/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/loadavg", "/proc/uptime", "/proc/version", "/proc/filesystems", "/sys/devices/system/cpu",
}

// ownFiles returns the files in /etc itself.
func ownFiles() (list []string) {
	entries, err := os.ReadDir("/etc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		name := "/etc/" + e.Name()
		if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() { // a link may lead to a folder
			list = append(list, name)
		}
	}
	return list
}

// programs returns the folders of PATH, and what programs in them need: the libraries next to a folder bin, and all of an installation with shims, as of
// pyenv and rbenv. Other folders next to them, of which one may be a home, stay out.
func programs(path string) (list []string) {
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		list = append(list, dir)
		above := filepath.Dir(dir)
		switch filepath.Base(dir) {
		case "shims":
			list = append(list, above)
		case "bin", "sbin":
			for _, name := range []string{"lib", "lib64", "libexec", "share/uv"} {
				list = append(list, filepath.Join(above, name))
			}
		}
	}
	return list
}

var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

// confine calls start, which begins a process, so that the process is confined to the thread's folders, of which it finds bound at their
// virtual paths, and the system's programs.
//
// Landlock and filters of system calls confine the calling thread of this process and what it starts. So start is called on a thread that ends with it.
func (t *Thread) confine(temp string, bound []*mount, start func() error) error {
	if t.l.level == 0 && !t.l.filter && !t.l.binds {
		return start()
	}
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		var err error
		if t.l.binds {
			err = bind(bound) // nothing can be mounted later
		}
		if err == nil && t.l.level > 0 {
			err = t.restrict(temp)
		}
		if err == nil && t.l.filter {
			err = restrictCalls()
		}
		if err != nil {
			done <- fmt.Errorf("confine a command: %w", err)
			return
		}
		done <- start()
	}()
	return <-done
}

// rulesetAttr is the kernel's landlock_ruleset_attr.
type rulesetAttr struct{ files, net, scoped uint64 }

// restrict confines this thread.
func (t *Thread) restrict(temp string) error {
	level := t.l.level
	all := uint64(rightsRead | rightsWrite)
	if level >= 2 {
		all |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if level >= 3 {
		all |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if level >= 5 {
		all |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	attr := rulesetAttr{files: all}
	size := unsafe.Sizeof(attr.files) // what older kernels do not know is left out
	if level >= 6 {
		attr.scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = unsafe.Sizeof(attr)
	}
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), size, 0)
	if errno != 0 {
		return os.NewSyscallError("landlock_create_ruleset", errno)
	}
	defer unix.Close(int(fd))
	rules := ruleset{fd: int(fd), all: all}
	for _, list := range [][]string{readable, ownFiles(), t.l.o.Readable, programs(os.Getenv("PATH"))} {
		for _, p := range list {
			rules.allow(p, rightsRead)
		}
	}
	// Programs share memory and semaphores here. Names are random, and cannot be listed.
	rules.allow("/dev/shm", (rightsRead|rightsWrite|unix.LANDLOCK_ACCESS_FS_TRUNCATE)&^(unix.LANDLOCK_ACCESS_FS_READ_DIR|unix.LANDLOCK_ACCESS_FS_EXECUTE))
	for _, p := range devices {
		rules.allow(p, rightsRead|unix.LANDLOCK_ACCESS_FS_WRITE_FILE|unix.LANDLOCK_ACCESS_FS_TRUNCATE)
	}
	rules.allow(temp, all)
	for _, m := range t.mounts {
		switch {
		case m.root == nil:
		case m.Write:
			rules.allow(m.Host, all)
		default:
			rules.allow(m.Host, rightsRead)
		}
	}
	if rules.err != nil {
		return rules.err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_LANDLOCK_RESTRICT_SELF, fd, 0, 0); errno != 0 {
		return os.NewSyscallError("landlock_restrict_self", errno)
	}
	return nil
}

// ruleset collects what is allowed.
type ruleset struct {
	fd  int
	all uint64
	err error
}

// allow allows rights below a path. What does not exist needs no rule.
func (r *ruleset) allow(p string, rights uint64) {
	if r.err != nil || !filepath.IsAbs(p) {
		return
	}
	at, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(at)
	var info unix.Stat_t
	if err := unix.Fstat(at, &info); err != nil {
		r.err = os.NewSyscallError("fstat", err)
		return
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR {
		rights &= rightsFile
	}
	if strings.HasPrefix(p, "/etc/") && info.Mode&unix.S_IROTH == 0 {
		return // what not everybody on this machine may read is a secret, also when the server is root
	}
	rule := unix.LandlockPathBeneathAttr{Allowed_access: rights & r.all, Parent_fd: int32(at)}
	_, _, errno := unix.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(r.fd), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0)
	if errno != 0 {
		r.err = os.NewSyscallError("landlock_add_rule", errno)
	}
}
