package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
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
