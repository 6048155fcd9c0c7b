package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal, with what was written to it.
type terminal struct {
	t     *testing.T
	hand  *os.File // writes keys, reads the screen
	slave *os.File
	read  chan string
	text  string // since the last key
	all   string
}

func openTerminal(t *testing.T, columns uint16) *terminal {
	t.Helper()
	hand, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no pseudo-terminals here:", err)
	}
	fd := int(hand.Fd())
	require.NoError(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(t, err)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: columns}))
	m := &terminal{t: t, hand: hand, slave: slave, read: make(chan string, 1000)}
	t.Cleanup(func() {
		require.NoError(t, slave.Close())
		for range m.read { // ends when the other side is closed
		}
		require.NoError(t, hand.Close())
	})
	go func() {
		defer close(m.read)
		b := make([]byte, 4096)
		for {
			n, err := hand.Read(b)
			if err != nil {
				return
			}
			m.read <- string(b[:n])
		}
	}()
	return m
}

// until waits until text was written since the last key.
func (m *terminal) until(text string) {
	m.t.Helper()
	for !strings.Contains(m.text, text) {
		select {
		case some := <-m.read:
			m.text, m.all = m.text+some, m.all+some
		case <-time.After(time.Minute):
			m.t.Fatalf("not on the terminal: %q\n%s", text, m.all)
		}
	}
}

func (m *terminal) keys(text string) {
	m.text = ""
	_, err := m.hand.WriteString(text)
	require.NoError(m.t, err)
}

// A person in a terminal approves, edits and rejects calls of a tool, sees answers in wide characters, and leaves at a question: the next command is on a line
// of its own, once, and continues there.
func TestChatInATerminal(t *testing.T) {
	t.Parallel()
	dir := folderWithAgent(t)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "script.json"), []byte(`[
		{"from": "tool", "when": "(?s)(?:.*response:\\s+)?(\\S+)$", "content": "The answer is ${1}。"},
		{"from": "human", "when": "(\\d+) times (\\d+)", "tool_calls": [{"name": "calculator", "args": {"expression": "$1 * $2"}}]},
		{"content": "日本語"}]`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "langgraph.json"), []byte(`{"graphs": {"g": {"agent": {"model": "scripted:script.json", "tools": ["calculator"],
		"middleware": {"human_in_the_loop": {"calculator": {"allowed_decisions": ["approve", "edit", "reject"]}}}}}}}`), 0o600))
	url := serveFolder(t, dir)
	chat := func(m *terminal, args ...string) chan error {
		root := newRoot(m.slave, m.slave)
		root.SetIn(m.slave)
		root.SetArgs(append([]string{"chat", "--url", url}, args...))
		ended := make(chan error, 1)
		go func() { ended <- root.ExecuteContext(t.Context()) }()
		return ended
	}
	m := openTerminal(t, 60)
	ended := chat(m)
	m.until("you> ")
	m.keys("6 times 7\r")
	m.until("[a]pprove, [e]dit, [r]eject> ")
	m.keys("a\r")
	m.until("The answer is 42。")
	m.until("you> ")
	m.keys("6 times 8\r")
	m.until("eject> ")
	m.keys("e\r")
	m.until("arguments as JSON")
	m.keys("{\"expression\": \r")
	m.until("is no JSON object; write one such as")
	m.until("arguments as JSON")
	m.keys("{\"expression\": \"1 + 1\"}\r")
	m.until("The answer is 2。")
	m.until("you> ")
	m.keys("日本語\x7f\x7f\r") // erases two of them
	m.until("日本語")
	m.until("you> ")
	m.keys("6 times 9\r")
	m.until("eject> ")
	m.keys("maybe\r")
	m.until("write one of approve, edit, reject")
	m.until("eject> ")
	m.keys("r\r")
	m.until("why (may be empty)> ")
	m.keys("\r")
	m.until("you> ")
	m.keys("7 times 7\r")
	m.until("eject> ")
	m.keys("\x03")
	require.NoError(t, <-ended)
	m.until("--url")
	require.Regexp(t, `eject> .*\r+\n[^\n]*The run waits for your answer: understudy chat --thread`, m.all)
	require.Equal(t, 1, strings.Count(m.all, "--thread"), m.all)
	_, rest, _ := strings.Cut(strings.ReplaceAll(m.all, "\r\n", ""), "--thread ")
	thread := rest[:36]

	ended = chat(m, "--thread", thread)
	m.keys("")
	m.until("eject> ")
	m.keys("a\r")
	m.until("The answer is 49。")
	m.until("you> ")
	m.keys("\x04")
	require.NoError(t, <-ended)
	m.until("continue with: understudy chat --thread " + thread[:10])
	require.Regexp(t, `you> .*\r+\n[^\n]*continue with`, m.all)
}
