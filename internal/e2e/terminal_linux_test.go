package e2e

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"understudy/internal/logtest"
)

// terminal is a program that runs in a terminal, as a person sees and uses it.
type terminal struct {
	t      *testing.T
	keys   *os.File // what is written here is typed
	shown  *logtest.Buffer
	from   int // what is expected next is behind it
	ended  chan error
	device *os.File // the side of the program
}

func inTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	bin, err := build()
	require.NoError(t, err)
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	device, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(int(device.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}))
	term := &terminal{t: t, keys: keys, device: device, shown: &logtest.Buffer{}, ended: make(chan error, 1)}
	cmd := exec.Command(bin, args...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = device, device, device
	cmd.Env = append(os.Environ(), "TERM=xterm")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		buffer := make([]byte, 4096)
		for {
			n, err := keys.Read(buffer)
			_, _ = term.shown.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() { term.ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		device.Close()
		keys.Close()
		<-copied
		if t.Failed() {
			t.Logf("the terminal showed:\n%q", term.shown)
		}
	})
	return term
}

// types presses keys.
func (term *terminal) types(keys string) {
	term.t.Helper()
	_, err := term.keys.WriteString(keys)
	require.NoError(term.t, err)
}

// shows waits for a text behind what was expected before.
func (term *terminal) shows(text string) {
	term.t.Helper()
	require.Eventually(term.t, func() bool {
		at := strings.Index(term.shown.String()[term.from:], text)
		if at >= 0 {
			term.from += at + len(text)
		}
		return at >= 0
	}, time.Minute, 5*time.Millisecond, text)
}

// A chat in a terminal: lines are edited and remembered, Ctrl-C ends an answer that is being written and, at the prompt, the chat, and the terminal is left
// as it was.
func TestChatInATerminal(t *testing.T) {
	t.Parallel()
	const up, left, del, ctrlC, ctrlU = "\x1b[A", "\x1b[D", "\x7f", "\x03", "\x15"
	dir := t.TempDir()
	for name, content := range map[string]string{
		"langgraph.json": `{"graphs": {"talker": {"agent": {"model": "scripted:script.json", "tools": []}}}}`,
		"script.json": `{"answers": [
			{"when": "forever", "content": "` + strings.Repeat("and so on, ", 10_000) + `", "delay": "5ms"},
			{"when": "(?s)^(.*)$", "content": "You said: $1."}]}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), fs.FileMode(0o600)))
	}
	server := serveWith(t, filepath.Join(dir, "data"), nil, "--config", filepath.Join(dir, "langgraph.json"))
	chat := inTerminal(t, "chat", "--url", server.url)
	mode := func() unix.Termios {
		m, err := unix.IoctlGetTermios(int(chat.device.Fd()), unix.TCGETS)
		require.NoError(t, err)
		return *m
	}

	chat.shows("talker on " + server.url)
	chat.shows("you> ")
	chat.types("helo wörldd" + del + strings.Repeat(left, 7) + "l\r")
	chat.shows("You said: hello wörld.")
	chat.shows("you> ")
	chat.types(up + "!\r")
	chat.shows("You said: hello wörld!.")
	chat.shows("you> ")
	chat.types("not sent" + ctrlU + "forever\r")
	chat.shows("and so on, and so on, ")
	chat.types(ctrlC)
	chat.shows("cancelled")
	chat.shows("you> ")
	chat.types("still there?\r")
	chat.shows("You said: still there?.")
	chat.shows("you> ")
	chat.types(ctrlC)
	chat.shows("continue with: understudy chat --thread ")
	select {
	case err := <-chat.ended:
		require.NoError(t, err)
	case <-time.After(time.Minute):
		t.Fatal("the chat did not end")
	}
	require.NotZero(t, mode().Lflag&unix.ECHO, "the terminal shows again what is typed")
	require.NotZero(t, mode().Lflag&unix.ICANON)

	thread := strings.Fields(chat.shown.String()[chat.from:])[0]
	thread, _, _ = strings.Cut(thread, "\x1b")
	runs, err := json.Marshal(server.call("GET", "/threads/"+thread+"/runs", nil, 200))
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(runs), `"status":"interrupted"`), string(runs))
	require.Equal(t, 3, strings.Count(string(runs), `"status":"success"`))
}
