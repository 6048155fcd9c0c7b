// Command retest runs go test with its arguments. Tests that fail run once more, alone, when the other packages are done: a test that
// passes then depends on how busy the machine is, and does not stop a landing. It is named at the end all the same, and in the file of
// RETESTED if that is set, because such a test, or what it tests, has a defect.
//
//	go run ./internal/retest -race -timeout=30m ./...
//
// Flags with a value need the equals sign.
// What cannot be chance is not repeated: packages that do not build, panics, data races, timeouts, and more than three failing tests.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// most is the number of failing tests that are repeated; more are no chance.
const most = 3

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Getenv("RETESTED"))
	stop()
	os.Exit(code)
}

// run returns the exit code. Failures that passed the second time are appended to the file named report, if it is not empty.
func run(ctx context.Context, args []string, out io.Writer, report string) int {
	found, code := goTest(ctx, args, out)
	if code == 0 || ctx.Err() != nil {
		return code
	}
	if found.hopeless != "" || len(found.tests) == 0 || len(found.tests) > most {
		return code
	}
	flags := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return !strings.HasPrefix(a, "-") })
	var passed []string
	for _, t := range found.tests {
		say(out, "\n--- once more, alone: %s %s\n", t.pkg, t.name)
		_, again := goTest(ctx, append(flags, "-count=1", "-run=^"+regexp.QuoteMeta(t.name)+"$", t.pkg), out)
		if again != 0 {
			return code
		}
		passed = append(passed, fmt.Sprintf("unstable: %s of %s failed once and passed alone", t.name, t.pkg))
	}
	for _, line := range passed {
		say(out, "%s\n", line)
	}
	if report != "" {
		f, err := os.OpenFile(report, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // the caller's file
		if err == nil {
			_, err = f.WriteString(strings.Join(passed, "\n") + "\n")
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			say(out, "cannot write %s: %v\n", report, err)
			return 1
		}
	}
	return 0
}

func say(out io.Writer, format string, args ...any) {
	_, _ = fmt.Fprintf(out, format, args...) // without an output nothing can be reported
}

func goTest(ctx context.Context, args []string, out io.Writer) (failures, int) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test"}, args...)...) //nolint:gosec // what make passes
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	var found failures
	read, write := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		found = failed(io.TeeReader(read, out))
	}()
	cmd.Stdout, cmd.Stderr = write, write
	err := cmd.Run()
	_ = write.Close()
	<-done
	if err == nil {
		return found, 0
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() > 0 {
		return found, exit.ExitCode()
	}
	say(out, "go test: %v\n", err)
	return found, 1
}

// failures are what the output of go test says of tests that failed.
type failures struct {
	tests    []test
	hopeless string // the line that says why repeating has no use
}

type test struct{ pkg, name string }

// failed reads the output of go test to its end. The tests of a package come before the line of the package.
func failed(r io.Reader) failures {
	var f failures
	var names []string
	lines := bufio.NewReader(r)
	for continued := false; ; {
		line, more, err := lines.ReadLine()
		if err != nil {
			return f
		}
		wasContinued := continued
		if continued = more; wasContinued { // of a very long line only the beginning counts
			continue
		}
		text := string(line)
		if name, ok := strings.CutPrefix(text, "--- FAIL: "); ok {
			name, _, _ = strings.Cut(name, " ")
			names = append(names, name)
		}
		if pkg, ok := strings.CutPrefix(text, "FAIL\t"); ok {
			if len(names) == 0 {
				f.hopeless = text // it does not build, or failed outside of its tests
			}
			pkg = strings.Fields(pkg)[0]
			for _, name := range names {
				f.tests = append(f.tests, test{pkg, name})
			}
			names = nil
		}
		for _, sign := range []string{"panic: ", "fatal error: ", "WARNING: DATA RACE"} {
			if strings.HasPrefix(text, sign) {
				f.hopeless = text
			}
		}
	}
}
