package app

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/id"
	"understudy/thread"
)

// A stream that waits keeps a stack of 8 KB, not the 16 KB that answering it took: the garbage collector halves a stack of which less than a quarter is used,
// so all that waits has to wait in small frames. Of the rest 24 KB are fasthttp's buffers, whose pages are mostly never touched.
func TestMemoryOfIdleStreams(t *testing.T) { // alone: it reads the memory of the whole process
	srv := serving(t, nil)
	const count = 400
	for name, open := range map[string]func(thread string) string{
		"thread":          func(th string) string { return "GET /threads/" + th + "/stream HTTP/1.1\r\nHost: x\r\n\r\n" },
		"event streaming": func(th string) string { return post("/threads/"+th+"/stream/events", `{"channels":["values"]}`) },
	} {
		t.Run(name, func(t *testing.T) {
			threads := make([]string, count)
			for i := range threads {
				th := id.NewThread()
				_, err := srv.threads.Create(t.Context(), thread.New{ID: th})
				require.NoError(t, err)
				threads[i] = string(th)
			}
			connect := func(th string) net.Conn {
				c, err := net.Dial("tcp", strings.TrimPrefix(srv.url(), "http://"))
				require.NoError(t, err)
				_, err = c.Write([]byte(open(th)))
				require.NoError(t, err)
				resp, err := http.ReadResponse(bufio.NewReaderSize(c, 512), nil)
				require.NoError(t, err)
				require.Equal(t, http.StatusOK, resp.StatusCode)
				return c
			}
			defer connect(threads[0]).Close() // what is made once
			before := inUse()
			for _, th := range threads {
				defer connect(th).Close()
			}
			after := inUse()
			stack, all := (after[0]-before[0])/count, (after[1]-before[1])/count
			t.Logf("stack %d, all %d bytes", stack, all)
			require.Less(t, stack, 12<<10, "the frames that wait have become too large: GOTRACEBACK=system and SIGQUIT show their sizes")
			require.Less(t, all, 48<<10)
		})
	}
}

func post(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
}

// inUse returns the bytes of stacks, and of stacks and objects.
func inUse() (b [2]int) {
	runtime.GC()
	runtime.GC() // a stack shrinks by half in each
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return [2]int{int(m.StackInuse), int(m.StackInuse + m.HeapAlloc)}
}
