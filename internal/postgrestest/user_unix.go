//go:build unix

package postgrestest

import (
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"syscall"
)

// owner is whom the processes and files of a cluster belong to.
type owner syscall.Credential

// attributes make a process the owner's.
func (o *owner) attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: (*syscall.Credential)(o)}
}

// unprivileged returns a user without privileges.
func unprivileged() (*owner, error) {
	var missing error
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			missing = err
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		return &owner{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
	}
	return nil, fmt.Errorf("postgres does not run as root, and there is no other user: %w", missing)
}
