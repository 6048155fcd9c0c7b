package markdown

import (
	"runtime/metrics"
	"time"
)

// watch calls end when the process has more than maxMemory. stop ends it.
func watch(end func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		sample := []metrics.Sample{{Name: "/memory/classes/total:bytes"}, {Name: "/memory/classes/heap/released:bytes"}}
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				metrics.Read(sample)
				if sample[0].Value.Uint64()-sample[1].Value.Uint64() > maxMemory {
					end()
					return
				}
			}
		}
	}()
	return func() { close(done) }
}
