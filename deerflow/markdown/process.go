package markdown

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"time"

	"understudy/deerflow/files"
)

const (
	timeout   = 60 * time.Second
	memory    = "GOMEMLIMIT=256MiB"
	maxMemory = 1 << 30  // bytes; above it the process ends
	maxText   = 16 << 20 // bytes of Markdown; what is more is left out
	exitNone  = 3        // exit code: the document has no text, or cannot be read
)

// Command is the hidden command of the program that converts: its arguments are a name, for its type, and the path of a document.
const Command = "convert-document"

// Converter converts with processes of program, each `program convert-document NAME /dev/stdin`. At most two run at once.
func Converter(program string) files.Converter {
	slots := make(chan struct{}, 2)
	return func(ctx context.Context, document *os.File, name string, to io.Writer) error {
		if formats[strings.ToLower(path.Ext(name))] == nil {
			return &files.NoText{Reason: unknown(path.Ext(name))}
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		defer func() { <-slots }()
		within, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		cmd := exec.CommandContext(within, program, Command, path.Ext(name))
		cmd.Stdin, cmd.Stdout = document, to
		cmd.Env = append(os.Environ()[:0:0], "PATH="+os.Getenv("PATH"), "SYSTEMROOT="+os.Getenv("SYSTEMROOT"), memory)
		cmd.WaitDelay = time.Second
		var said bytes.Buffer
		cmd.Stderr = &limited{to: &said, left: 4 << 10}
		err := cmd.Run()
		var exit *exec.ExitError
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil: // the request ended: that says nothing of the document
			return context.Cause(ctx)
		case within.Err() != nil:
			return &files.NoText{Reason: fmt.Sprintf("its conversion took longer than %s", timeout)}
		case errors.As(err, &exit):
			return &files.NoText{Reason: reason(said.String())} // it found none, or ended in the attempt
		}
		return fmt.Errorf("convert a document: %w", err)
	}
}

func unknown(ext string) string {
	return fmt.Sprintf("documents of type %q cannot be converted", strings.ToLower(ext))
}

// reason returns what the process said last of a document, in a line.
func reason(said string) string {
	const most = 200 // bytes
	line := strings.TrimSpace(strings.ToValidUTF8(said, ""))
	line, _, _ = strings.Cut(line, "\n")
	if len(line) > most {
		line = strings.ToValidUTF8(line[:most], "") + "…"
	}
	return cmp.Or(line, "its conversion was ended, or failed")
}

// limited writes up to so many bytes, and takes the rest without error.
type limited struct {
	to   io.Writer
	left int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.left)
	l.left -= n
	if n > 0 {
		if _, err := l.to.Write(b[:n]); err != nil {
			return 0, err
		}
	}
	return len(b), nil
}

// Main is the hidden command: it reads a document of the type ext from in and writes its text to out. It returns the exit code.
func Main(ext string, in *os.File, out, errs io.Writer) (code int) {
	defer func() {
		if p := recover(); p != nil { // the readers of documents do not expect hostile ones
			fmt.Fprintln(errs, "panic:", p)
			code = exitNone
		}
	}()
	end := func(reason string) {
		fmt.Fprintln(errs, reason)
		os.Exit(exitNone)
	}
	stop := watch(func() { end(fmt.Sprintf("its conversion needs more than %d MiB of memory", maxMemory>>20)) })
	defer stop()
	convert := formats[strings.ToLower(ext)]
	if convert == nil {
		fmt.Fprintln(errs, unknown(ext))
		return exitNone
	}
	info, err := in.Stat()
	if err != nil {
		fmt.Fprintln(errs, err)
		return exitNone
	}
	w := &writer{left: maxText, end: end}
	if err := convert(in, info.Size(), w); err != nil && !errors.Is(err, errFull) {
		fmt.Fprintln(errs, err)
		return exitNone
	}
	if len(bytes.TrimSpace(w.Bytes())) == 0 {
		fmt.Fprintln(errs, "the document has no text")
		return exitNone
	}
	if _, err := out.Write(w.Bytes()); err != nil {
		return 1
	}
	return 0
}
