package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"

	"understudy/internal/loop"
)

// lineReader reads what a person writes.
type lineReader interface {
	// line returns the next line without its end; io.EOF after the last, or when the person ends.
	line(prompt string) (string, error)
	// interactive reports whether a person is there.
	interactive() bool
}

func newLines(in io.Reader, out io.Writer) lineReader {
	if f, ok := in.(*os.File); ok && isTerminal(out) && isTerminal(in) {
		return &terminalLines{fd: int(f.Fd()), out: out, terminal: term.NewTerminal(struct {
			io.Reader
			io.Writer
		}{in, out}, "")}
	}
	return &pipedLines{r: bufio.NewReader(in)}
}

// terminalLines edits lines, with a history.
type terminalLines struct {
	fd       int
	out      io.Writer
	terminal *term.Terminal
}

func (l *terminalLines) interactive() bool { return true }

// line has the terminal raw only while it reads, so that Ctrl-C ends a run otherwise.
func (l *terminalLines) line(prompt string) (string, error) {
	state, err := term.MakeRaw(l.fd)
	if err != nil {
		return "", err
	}
	defer func() { _ = term.Restore(l.fd, state) }()
	if width, height, err := term.GetSize(l.fd); err == nil {
		_ = l.terminal.SetSize(width, height)
	}
	l.terminal.SetPrompt(prompt)
	text, err := l.terminal.ReadLine()
	if errors.Is(err, io.EOF) {
		fmt.Fprint(l.out, "\r\n") // what follows is not part of the prompt
	}
	return text, err
}

// pipedLines reads lines of a file or pipe, and shows no prompt.
type pipedLines struct{ r *bufio.Reader }

func (l *pipedLines) interactive() bool { return false }

func (l *pipedLines) line(string) (string, error) {
	text, err := l.r.ReadString('\n')
	if err != nil && text == "" {
		return "", err
	}
	return strings.TrimRight(text, "\r\n"), nil
}

// givenLines are lines that a flag has, before those of a person at a terminal. Other input is not read: it may be that of a script around the command.
type givenLines struct {
	lines []string
	after lineReader
}

func (l *givenLines) interactive() bool { return l.after.interactive() }

func (l *givenLines) line(prompt string) (string, error) {
	if len(l.lines) == 0 {
		if !l.interactive() {
			return "", io.EOF
		}
		return l.after.line(prompt)
	}
	text := l.lines[0]
	l.lines = l.lines[1:]
	return text, nil
}

// How long a command may be silent: on a terminal, where a sign is taken away again, and elsewhere, such as in a log.
const (
	patientFor = time.Second
	quietFor   = 2 * time.Second
	stillEvery = 10 * time.Second
)

// waitSign shows that something is still running: on a terminal a sign after patientFor, which the function that it returns takes away; elsewhere a line after
// quietFor, and then every ten seconds. The function may be called again. out is standard error, where what is printed may be read by a program.
func waitSign(out io.Writer, what string) (done func()) {
	if !isTerminal(out) {
		began, again := time.Now(), false
		return repeat(quietFor, stillEvery, func() {
			if again {
				fmt.Fprintf(out, "still %s, for %s\n", what, time.Since(began).Round(time.Second))
				return
			}
			again = true
			fmt.Fprintln(out, what+" …")
		})
	}
	var bar *progressbar.ProgressBar
	stop := repeat(patientFor, 100*time.Millisecond, func() {
		if bar == nil {
			bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what), progressbar.OptionClearOnFinish(),
				progressbar.OptionSetElapsedTime(true), progressbar.OptionSpinnerType(14))
		}
		_ = bar.Add(1)
	})
	return func() {
		stop()
		if bar != nil {
			_ = bar.Finish()
			bar = nil
		}
	}
}

// repeat calls say after a time, and then at an interval, until the function that it returns is called. That waits for the last call, and may be called again.
func repeat(first, every time.Duration, say func()) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		for wait := first; loop.Sleep(ctx, wait); wait = every {
			say()
		}
	}()
	return func() { cancel(); <-over }
}
