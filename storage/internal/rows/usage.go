package rows

import (
	"maps"
	"slices"

	"understudy/internal/compact"
	"understudy/thread"
)

// CountParts adds the parts of lists to the channels whose values name them. sizes are the bytes
// of the parts by number. Versions of a channel share parts, and so may channels: a part counts
// once, for the first channel in order of names.
func CountParts(u *thread.Usage, named map[string]*compact.Set, sizes map[uint32]int64) {
	for _, channel := range slices.Sorted(maps.Keys(named)) {
		a := u.Channels[channel]
		for _, r := range named[channel].Runs() {
			for n := r.First; n-r.First < r.Count; n++ {
				a.Bytes += sizes[n]
				delete(sizes, n)
			}
		}
		u.Channels[channel] = a
	}
}
