package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// mountPoint is the folder below which virtual paths can be real ones for commands.
const mountPoint = "/mnt"

// canBind reports whether this process may give threads of its own other mounts: it needs CAP_SYS_ADMIN, as root has outside of containers.
func canBind() bool {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		done <- bind(nil)
	}()
	return <-done == nil
}

// bound are the mounts that commands find at their virtual paths, outer ones first. Of the others the paths are replaced in commands.
func (t *Thread) bound() (list []*mount) {
	if !t.l.binds {
		return nil
	}
	for _, m := range slices.Backward(t.mounts) { // the longest is first there
		if m.root == nil || !strings.HasPrefix(m.Virtual, mountPoint+"/") {
			continue
		}
		if m.hasPlaceIn(list) {
			list = append(list, m)
		}
	}
	return list
}

// hasPlaceIn reports whether a folder can be mounted on top of others, and of what this machine has below the mount point: inside of one of them it needs a
// folder there, which is not made in what is another's.
func (m *mount) hasPlaceIn(list []*mount) bool {
	for _, outer := range slices.Backward(list) { // the innermost is last
		if name, in := within(outer.Virtual, m.Virtual); in {
			info, err := os.Stat(filepath.Join(outer.Host, filepath.FromSlash(name)))
			return err == nil && info.IsDir()
		}
	}
	first, _, _ := strings.Cut(strings.TrimPrefix(m.Virtual, mountPoint+"/"), "/")
	at := filepath.Join(mountPoint, first)
	info, err := os.Lstat(at)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return true
	case err != nil || !info.IsDir(): // a link would lead the mount elsewhere
		return false
	case at == filepath.Clean(m.Virtual):
		return true
	}
	info, err = os.Stat(m.Virtual)
	return err == nil && info.IsDir()
}

// bind gives this thread, which must be locked, and what it starts, mounts of their own, in which folders are at their virtual paths. Nothing else of the machine changes.
func bind(mounts []*mount) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return os.NewSyscallError("unshare", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return os.NewSyscallError("mount", err)
	}
	// What is below the mount point stays there: the folders of threads may be.
	entries, err := os.ReadDir(mountPoint)
	if err != nil {
		return err
	}
	var places []place
	links := map[string]string{}
	defer func() {
		for _, p := range places {
			unix.Close(p.fd)
		}
	}()
	open := func(from, to string, folder bool) error {
		fd, err := unix.Open(from, unix.O_PATH|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: from, Err: err}
		}
		places = append(places, place{fd: fd, to: to, folder: folder})
		return nil
	}
	for _, e := range entries {
		at := filepath.Join(mountPoint, e.Name())
		if e.Type()&os.ModeSymlink != 0 {
			if to, err := os.Readlink(at); err == nil {
				links[at] = to
			}
			continue
		}
		if err := open(at, at, e.IsDir()); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may have gone
			return err
		}
	}
	for _, m := range mounts {
		host, err := filepath.EvalSymlinks(m.Host)
		if err != nil {
			return err
		}
		if err := open(host, m.Virtual, true); err != nil {
			return err
		}
	}
	if err := unix.Mount("tmpfs", mountPoint, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=64k"); err != nil {
		return os.NewSyscallError("mount", err)
	}
	for at, to := range links {
		if err := os.Symlink(to, at); err != nil {
			return err
		}
	}
	for _, p := range places {
		if err := p.show(); err != nil {
			return fmt.Errorf("show a folder at %s: %w", p.to, err)
		}
	}
	return nil
}

// place is an opened file or folder, and where it is to be.
type place struct {
	fd     int
	to     string
	folder bool
}

func (p place) show() error {
	if p.folder {
		if err := os.MkdirAll(p.to, 0o755); err != nil {
			return err
		}
	} else if err := os.WriteFile(p.to, nil, 0o600); err != nil {
		return err
	}
	return os.NewSyscallError("mount", unix.Mount("/proc/thread-self/fd/"+strconv.Itoa(p.fd), p.to, "", unix.MS_BIND|unix.MS_REC, ""))
}
