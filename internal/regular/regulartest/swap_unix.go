//go:build unix

package regulartest

import (
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long work with files may take.
const patience = time.Minute

// WhileSwapping runs work while a pipe and a file with this content are put at a path in turn. The test fails if work does not end within a minute: it waits for a pipe.
// work runs in a goroutine of its own and must not end the test.
func WhileSwapping(t *testing.T, at, content string, work func()) {
	t.Helper()
	stop, done := make(chan struct{}), make(chan struct{})
	var swapping sync.WaitGroup
	swapping.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			_ = os.Remove(at)
			if n%2 == 0 {
				_ = syscall.Mkfifo(at, 0o600)
			} else {
				_ = os.WriteFile(at+".new", []byte(content), 0o600)
				_ = os.Rename(at+".new", at)
			}
		}
	})
	go func() {
		defer close(done)
		work()
	}()
	late := false
	select {
	case <-done:
	case <-time.After(patience):
		late = true
	}
	close(stop)
	swapping.Wait()
	if late {
		t.Fatalf("work with %s did not end within %s", at, patience)
	}
}
