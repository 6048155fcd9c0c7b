package pregel

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Whatever is done in whatever order, lists that were handed out stay as they were, each task has the writes that it made last, and what is to be stored is
// what the list has of the task.
func TestPendingWritesOfAnyOrder(t *testing.T) {
	t.Parallel()
	channels := []string{"a", "b", writeResume, writeInterrupt, writeError}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // a test
		var p pendingWrites
		p.reset(nil)
		type handedOut struct{ got, was []pendingWrite }
		var lists []handedOut
		last := map[string][]write{}
		for range 30 {
			lists = append(lists, handedOut{p.list(), slices.Clone(p.list())})
			switch random.IntN(10) {
			case 0:
				p.forget(writeResume)
				for id := range last {
					last[id] = slices.DeleteFunc(slices.Clone(last[id]), func(w write) bool { return w.channel == writeResume })
				}
			case 1:
				p.applied()
				clear(last)
			case 2:
				had := slices.ContainsFunc(p.list(), func(w pendingWrite) bool { return w.task == nullTask && w.channel == writeResume })
				require.Equal(t, had, p.takeAnswer() != nil)
			default:
				id := []string{"one", "two", nullTask}[random.IntN(3)]
				var writes []write
				ordinary := random.IntN(2) == 0
				for i := range 1 + random.IntN(3) {
					channel := channels[i%2]
					if !ordinary {
						channel = channels[2+i]
					}
					writes = append(writes, write{channel, fromGo(fmt.Sprint(random.IntN(100)))})
				}
				stored := p.add(id, writes)
				var has []write
				for _, w := range p.list() {
					if w.task == id {
						has = append(has, write{w.channel, w.v})
					}
				}
				require.Equal(t, has, stored, "seed %d", seed)
				if id != nullTask {
					last[id] = writes
				}
			}
			for _, l := range lists {
				require.Equal(t, l.was, l.got, "seed %d", seed)
			}
			for id, writes := range last {
				var has []write
				for _, w := range p.list() {
					if w.task == id {
						has = append(has, write{w.channel, w.v})
					}
				}
				require.ElementsMatch(t, writes, has, "seed %d, task %s", seed, id)
			}
		}
	}
}
