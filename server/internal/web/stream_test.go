package web

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Streams that are looked at write once a frame while records follow one another, all of them at the same moments, and less often when they are many.
func TestPaceOfWatchedStreams(t *testing.T) {
	for streams, most := range map[int]int{1: 64, fewWatched: 64, 50: 21} { // writes of each in a second
		synctest.Test(t, func(t *testing.T) {
			s := &Transport{}
			var all sync.WaitGroup
			for n := range streams {
				all.Go(func() {
					o := &Open{s: s, watched: true}
					time.Sleep(time.Duration(n) * time.Millisecond / 20) // the first record of each comes at another time
					writes := 0
					for began := time.Now(); time.Since(began) < time.Second; writes++ {
						o.rest(t.Context())
						require.Zero(t, time.Since(time.Now().Truncate(frame)), "they write together")
					}
					require.InDelta(t, most, writes, 2)
				})
			}
			all.Wait()
			require.Zero(t, s.resting.Load())
		})
	}
}

func TestWatchedStreamsOfClientsThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		began := time.Now()
		(&Open{s: &Transport{}, watched: true}).rest(gone)
		require.Zero(t, time.Since(began))
	})
}
