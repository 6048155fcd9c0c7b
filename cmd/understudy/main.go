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
	"os"

	"understudy/deerflow/markdown"
	"understudy/internal/app"
	"understudy/internal/config"
)

// Exit codes.
const (
	exitFailed = 1   // the server could not start, or stopped by a fault
	exitUsage  = 2   // a flag, a variable or langgraph.json has a mistake
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
	code := exitFailed
	var mistakes config.Mistakes
	var usage usageError
	switch {
	case errors.Is(err, errUnwell):
	case errors.Is(err, errStopped):
		code = exitSignal
	case errors.As(err, &mistakes):
		fmt.Fprintln(os.Stderr, "understudy cannot start:")
		for _, m := range mistakes {
			fmt.Fprintln(os.Stderr, "  "+m.String())
		}
		code = exitUsage
	case errors.Is(err, app.ErrNoGraphs):
		fmt.Fprintf(os.Stderr, "understudy: %v\n", err)
		code = exitGraphs
	case errors.As(err, &usage):
		fmt.Fprintf(os.Stderr, "understudy: %v\n", err)
		code = exitUsage
	default:
		fmt.Fprintf(os.Stderr, "understudy: %v\n", err)
	}
	os.Exit(code)
}
