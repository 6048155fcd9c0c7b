//go:build unix

package connection

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/internal/logtest"
)

// However clients come and go, the rest of a process can open files while clients wait. The process is a child that may have 100 files open, and the clients
// are in its parent.
func TestFilesForOthersThanClients(t *testing.T) {
	const mark = "UNDERSTUDY_TEST_FEW_FILES"
	if os.Getenv(mark) != "" {
		serveWithFewFiles()
		return
	}
	cmd := exec.Command("sh", "-c", `ulimit -n 100; exec "$0" "$@"`, os.Args[0], "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), mark+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	defer func() { in.Close(); require.NoError(t, cmd.Wait()) }()
	out := bufio.NewReader(stdout)
	ask := func(format string, args ...any) string {
		t.Helper()
		fmt.Fprintf(in, format+"\n", args...)
		line, err := out.ReadString('\n')
		require.NoError(t, err)
		return strings.TrimSpace(line)
	}
	address := ask("address")
	dialed, ended := 0, 0
	reaches := func(n int) {
		t.Helper()
		last := ""
		require.Eventually(t, func() bool { last = ask("accepted"); return last == fmt.Sprint(n) }, 30*time.Second, 5*time.Millisecond, "%d: %s", n, &last)
	}
	var all sync.WaitGroup
	dial := func(n int) {
		t.Helper()
		for range n {
			c, err := net.Dial("tcp", address)
			require.NoError(t, err) // the kernel takes it
			dialed++
			all.Go(func() {
				_, _ = io.Copy(io.Discard, c)
				c.Close()
			})
		}
	}
	dial(10)
	reaches(10)
	dial(150)
	require.Equal(t, "ok", ask("full"))
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a test
	for round := range 40 {
		n := random.IntN(20)
		dial(n)
		ask("end %d", n)
		ended += n
		if random.IntN(3) == 0 {
			ask("files %d", random.IntN(8)) // others have so many from now on
		}
		require.Equal(t, "ok", ask("full"))
		require.Equal(t, "ok", ask("others"), "round %d of %d", round, seed)
	}
	require.Equal(t, "1", ask("lines"), "connections wait: said once")
	ask("files 0")
	for ask("accepted") != fmt.Sprint(dialed) {
		ask("end 10")
	}
	ask("end 1000")
	all.Wait()
	dial(120)
	require.Equal(t, "ok", ask("full"))
	require.Equal(t, net.ErrClosed.Error(), ask("close"))
	ask("end 1000")
	all.Wait()
}

// serveWithFewFiles does what it reads until there is no more.
func serveWithFewFiles() {
	var log logtest.Buffer
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	p := NewPatient(ln, slog.New(slog.NewTextHandler(&log, nil)))
	var mu sync.Mutex
	var open []net.Conn
	accepted := 0
	last := make(chan error, 1)
	go func() {
		for {
			c, err := p.Accept()
			if err != nil {
				last <- err
				return
			}
			mu.Lock()
			open, accepted = append(open, c), accepted+1
			mu.Unlock()
		}
	}()
	used := func() (n int) {
		for fd := range 100 {
			var s syscall.Stat_t
			if syscall.Fstat(fd, &s) == nil {
				n++
			}
		}
		return n
	}
	var others []*os.File
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var word string
		var n int
		_, _ = fmt.Sscan(in.Text(), &word, &n)
		switch word {
		case "address":
			fmt.Println(ln.Addr())
		case "accepted":
			mu.Lock()
			fmt.Println(accepted)
			mu.Unlock()
		case "lines":
			fmt.Println(strings.Count(log.String(), "connections wait"))
		case "end":
			mu.Lock()
			// Those that leave room for clients, and stay where that for others is.
			slices.SortFunc(open, func(a, b net.Conn) int { return descriptor(a) - descriptor(b) })
			n = min(n, len(open))
			for i := range n {
				open[i].Close()
			}
			open = open[n:]
			mu.Unlock()
			fmt.Println("ok")
		case "files":
			for _, f := range others {
				f.Close()
			}
			others = nil
			for range n {
				f, err := os.Open(os.DevNull)
				if err != nil {
					panic(err)
				}
				others = append(others, f)
			}
			fmt.Println("ok")
		case "full": // waits until a client is held
			for end := time.Now().Add(30 * time.Second); used() <= p.most && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			fmt.Println("ok")
		case "others": // beside those that they have, the held client and the look for room
			var files []*os.File
			var err error
			for range p.limit - p.most - 8 - 3 {
				var f *os.File
				if f, err = os.Open(os.DevNull); err != nil {
					break
				}
				files = append(files, f)
			}
			for _, f := range files {
				f.Close()
			}
			if err == nil {
				err = errors.New("ok")
			}
			fmt.Println(err)
		case "close":
			p.Close()
			fmt.Println(<-last)
		}
	}
}
