// Command understudy serves LangGraph graphs through the LangGraph Server API.
//
//	understudy dev       on a developer's machine
//	understudy serve     in production
//	understudy worker    executes runs of a database that others serve
//	understudy proxy     in front of a LangGraph Server that stays
//	understudy chat      talks to a running server; threads, runs, state and logs show what it holds
//	understudy import    conversations from LangGraph's databases and servers
//	understudy export    conversations into LangGraph's databases
//	understudy doctor    checks what a server needs
//	understudy health    asks a server whether it is ready
//	understudy version
//
// It is a thin user of internal/app: it reads flags, environment and langgraph.json, and handles signals.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"understudy/deerflow/markdown"
	"understudy/internal/app"
	"understudy/internal/app/advice"
	"understudy/internal/config"
)

// Exit codes. None is 2, with which Go ends a program that has no memory or thread left, or meets a bug: what starts it must be able to tell that from a mistake,
// after which another start is useless.
const (
	exitFailed = 1   // the server could not start, or stopped by a fault
	exitUsage  = 78  // EX_CONFIG: a flag, a variable or langgraph.json has a mistake
	exitGraphs = 3   // no graph loads
	exitSignal = 130 // Ctrl-C ended what a script waits for, as shells expect
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == markdown.Command { // a process of the server's own
		os.Exit(markdown.Main(os.Args[2], os.Stdin, os.Stdout, os.Stderr))
	}
	out := &output{File: os.Stdout}
	err := newRoot(out, os.Stderr).ExecuteContext(context.Background())
	if err == nil {
		err = out.err
	}
	if err == nil {
		return
	}
	if !errors.As(err, new(loggedError)) {
		printFailure(err, os.Stderr)
	}
	os.Exit(exitCode(err))
}

// exitCode returns the exit code for the error of a command.
func exitCode(err error) int {
	switch {
	case errors.Is(err, errStopped):
		return exitSignal
	case errors.Is(err, app.ErrNoGraphs):
		return exitGraphs
	case errors.As(err, new(config.Mistakes)), errors.As(err, new(usageError)):
		return exitUsage
	}
	return exitFailed
}

// printFailure writes the error of a command for a person.
func printFailure(err error, stderr io.Writer) {
	var mistakes config.Mistakes
	switch {
	case errors.Is(err, errUnwell), errors.Is(err, errStopped):
	case errors.As(err, &mistakes):
		fmt.Fprintln(stderr, "understudy cannot start:")
		for _, m := range mistakes {
			fmt.Fprintln(stderr, "  "+m.String())
		}
	default:
		fmt.Fprintf(stderr, "understudy: %v\n", err)
	}
}

// loggedError is the error of a server that logs JSON, where it is written already.
type loggedError struct{ error }

func (e loggedError) Unwrap() error { return e.error }

// logFailure writes the error of a server to its log, mistakes of the configuration on a line each.
func logFailure(err error, log *slog.Logger) {
	var mistakes config.Mistakes
	if errors.As(err, &mistakes) {
		for _, m := range mistakes {
			log.Error("understudy cannot start", "error", m.String())
		}
		return
	}
	if p := advice.From(err); p != nil {
		log.Error("understudy failed", "error", p.Text, "fix", p.Fix)
		return
	}
	log.Error("understudy failed", "error", err)
}
