package config

import "fmt"

// ByteSize is a number of bytes.
type ByteSize int64

// Units of ByteSize.
const (
	KiB ByteSize = 1 << 10
	MiB ByteSize = 1 << 20
	GiB ByteSize = 1 << 30
)

// String writes a size with the largest unit that divides it.
func (b ByteSize) String() string {
	for _, u := range []struct {
		size ByteSize
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size && b%u.size == 0 {
			return fmt.Sprintf("%d%s", b/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d", int64(b))
}
