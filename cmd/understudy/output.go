package main

import (
	"io"
	"os"

	"golang.org/x/term"
)

// output is standard output. It remembers the first error: what a command prints for a script must not be lost with exit code 0.
type output struct {
	*os.File
	err error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if o.err == nil {
		o.err = err
	}
	return n, err
}

// WriteString is there because os.File has one, which would pass Write by.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// ReadFrom is there for the same reason.
func (o *output) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{o}, r) }

// isTerminal reports whether a reader or writer is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
