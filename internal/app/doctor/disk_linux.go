package doctor

import "syscall"

// remoteKinds are file systems that are not on a disk of this machine, by the magic number of statfs(2).
var remoteKinds = map[int64]string{
	0x6969: "nfs", 0xff534d42: "cifs", 0xfe534d42: "smb2", 0x517b: "smb", 0x01021997: "9p", 0x65735546: "fuse", 0x5346414f: "afs", 0x00c36400: "ceph",
}

// diskOf returns the free bytes for this user, -1 if unknown, and the kind of a file system with
// unreliable locks; "" for others.
func diskOf(dir string) (free int64, kind string) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return -1, ""
	}
	return int64(s.Bavail) * s.Bsize, remoteKinds[int64(s.Type)] //nolint:unconvert // other sizes on other machines
}
