package child

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// A frame is allocated once, whatever its size.
func TestFramesAreAllocatedOnce(t *testing.T) {
	for _, size := range []int{1 << 10, 1 << 20, 33 << 20} {
		frame, at := openFrame(nil)
		frame, err := closeFrame(append(frame, make([]byte, size)...), at)
		require.NoError(t, err)
		r := bufio.NewReader(bytes.NewReader(frame))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		body, err := ReadFrame(r)
		runtime.ReadMemStats(&after)
		require.NoError(t, err)
		require.Len(t, body, size)
		require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(size)+(2<<20), "a frame of %d bytes", size)
	}
}

// Frames that several goroutines add arrive whole, each once, and those of one goroutine in order, also when the process is gone at the end.
func TestOutboxWritesEachFrameOnce(t *testing.T) {
	t.Parallel()
	const writers, frames = 8, 200
	o := NewOutbox()
	here, there := net.Pipe()
	var written, adding sync.WaitGroup
	written.Go(func() { o.WriteTo(here) })
	for w := range writers {
		adding.Go(func() {
			for n := range frames {
				if err := o.Add(func(b []byte) []byte { return fmt.Appendf(b, "%d %d %s", w, n, bytes.Repeat([]byte("x"), n*37)) }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var next [writers]int
	for r, i := bufio.NewReader(there), 0; i < writers*frames; i++ {
		body, err := ReadFrame(r)
		require.NoError(t, err)
		var w, n int
		var text string
		_, _ = fmt.Sscan(string(body), &w, &n, &text)
		require.Equal(t, next[w], n)
		require.Len(t, text, n*37)
		next[w]++
	}
	adding.Wait()
	require.NoError(t, here.Close())
	require.NoError(t, o.Add(func(b []byte) []byte { return append(b, "to a closed connection"...) }))
	o.Close()
	o.Close()
	require.NoError(t, o.Add(func(b []byte) []byte { return append(b, "too late"...) }))
	written.Wait()
}
