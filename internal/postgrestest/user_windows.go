package postgrestest

import "syscall"

// owner is not needed: Postgres itself drops the rights of an administrator here.
type owner struct{ Uid, Gid uint32 }

func (*owner) attributes() *syscall.SysProcAttr { return nil }

func unprivileged() (*owner, error) { return nil, nil }
