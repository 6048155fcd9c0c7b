package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// peer is one of the servers that are compared.
type peer struct {
	name       string
	credential func(identity int) string // lines of the head of a request; nil: none
	at         string                    // host and port
	process    *exec.Cmd
	links      []link   // one of each client
	threads    []string // one of each client, or identity
}

// understudy is the command of a server of this program.
func understudy(ctx context.Context, file, data string) *exec.Cmd {
	return exec.CommandContext(ctx, *binary, "serve", "--config", file, "--data", data, "--port", "0", "--python", *python, "--workers", "1", "--log-level", "error")
}

// start starts a server and opens the connections of its clients. Without an address it prints where it listens.
func (p *peer) start(ctx context.Context, command *exec.Cmd, at string) (err error) {
	p.process = command
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return fmt.Errorf("%s: %w (make build)", p.name, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	lines := bufio.NewScanner(out)
	for at == "" && lines.Scan() {
		at, _ = strings.CutPrefix(lines.Text(), "understudy listening on http://")
		if at == lines.Text() {
			at = ""
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // ends with the process
	if p.at = at; at == "" {
		return fmt.Errorf("%s did not start", p.name)
	}
	for began := time.Now(); ; { // until it answers
		err := p.connect(1)
		if err == nil {
			return nil
		}
		if time.Since(began) > time.Minute || ctx.Err() != nil {
			return fmt.Errorf("%s does not listen: %w", p.name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// connect opens the connections of clients anew: servers close those that are idle during the turns of others.
func (p *peer) connect(clients int) error {
	p.disconnect()
	for range clients {
		conn, err := net.Dial("tcp", p.at)
		if err != nil {
			return err
		}
		p.links = append(p.links, link{conn, bufio.NewReader(conn)})
	}
	return nil
}

func (p *peer) disconnect() {
	for _, l := range p.links {
		_ = l.conn.Close()
	}
	p.links = nil
}

func (p *peer) stop() error {
	p.disconnect()
	if p.process.Process == nil {
		return nil
	}
	if err := p.process.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if exit := (*exec.ExitError)(nil); !errors.As(p.process.Wait(), &exit) || exit.ExitCode() < 1 { // -1: by the signal
		return nil
	}
	return fmt.Errorf("%s: %s", p.name, p.process.ProcessState)
}

// link is the connection of one client. It costs less than http.Client, whose work with a larger head would be counted as that of the server.
type link struct {
	conn net.Conn
	in   *bufio.Reader
}

// send sends a request of a client who has an identity, and reads the answer.
func (p *peer) send(client, identity int, method, path, body string, into any) error {
	l := p.links[client]
	head := ""
	if p.credential != nil {
		head = p.credential(identity)
	}
	request := method + " " + path + " HTTP/1.1\r\nHost: " + p.at + "\r\n" + head + "Content-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
	if _, err := io.WriteString(l.conn, request); err != nil {
		return err
	}
	answer, err := http.ReadResponse(l.in, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"__error__"`)):
		return fmt.Errorf("%s: %s %s: %d %s", p.name, method, path, answer.StatusCode, text)
	case into == nil:
		return nil
	}
	return json.Unmarshal(text, into)
}

// newThread makes a thread of an identity.
func (p *peer) newThread(client, identity int) (string, error) {
	var t struct {
		ID string `json:"thread_id"`
	}
	err := p.send(client, identity, "POST", "/threads", `{}`, &t)
	return t.ID, err
}

// cpu returns the processor time that a process and its children have used so far; 0 where there is no /proc. Other programs on the machine change it little, unlike rates.
func cpu(pid int) (server, workers time.Duration) {
	server = cpuOf(pid)
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil {
				workers += cpuOf(n)
			}
		}
	}
	return server, workers
}

func cpuOf(pid int) time.Duration {
	var sum time.Duration
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	for _, list := range lists { // of threads: what they ran, in nanoseconds
		text, _ := os.ReadFile(list)
		ran, _, _ := strings.Cut(string(text), " ")
		if n, err := strconv.ParseInt(ran, 10, 64); err == nil {
			sum += time.Duration(n)
		}
	}
	return sum
}
