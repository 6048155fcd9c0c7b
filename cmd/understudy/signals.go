package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

// sameSignal is how long after the first signal the same one is taken for a copy of it: GNU timeout, and shells that end a process group,
// signal a child twice within milliseconds. A person who presses Ctrl-C again takes longer.
const sameSignal = 500 * time.Millisecond

// untilSignal returns a context that the first SIGINT, SIGTERM or SIGHUP cancels. The second ends the process at once.
func untilSignal(ctx context.Context, log *slog.Logger) (context.Context, func()) {
	return serveUntilSignal(ctx, log, false)
}

// serveUntilSignal is untilSignal for a server. survives: SIGHUP is only logged, because standard error is no terminal. Signals on which other servers reopen
// their logs are always only logged.
func serveUntilSignal(ctx context.Context, log *slog.Logger, survives bool) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 8) // room for copies: a signal that finds it full is lost
	wanted := []os.Signal{os.Interrupt, syscall.SIGTERM}
	for _, sig := range append([]os.Signal{syscall.SIGHUP}, reopenSignals...) {
		if !signal.Ignored(sig) { // as under nohup
			wanted = append(wanted, sig)
		}
	}
	signal.Notify(signals, wanted...)
	s := signalled{log: log, survives: survives, stop: cancel, exit: os.Exit}
	done := make(chan struct{})
	go s.await(signals, done)
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// signalled is what signals do.
type signalled struct {
	log      *slog.Logger
	survives bool // SIGHUP is only logged
	stop     context.CancelCauseFunc
	exit     func(int)
}

// await calls stop at the first signal and exit at the second, until done is closed. Copies of the first do not count, nor does SIGHUP after it: terminals and supervisors send both.
func (s *signalled) await(signals <-chan os.Signal, done <-chan struct{}) {
	var first os.Signal
	var at time.Time
	for {
		select {
		case <-done:
			return
		case sig := <-signals:
			hangUp := sig == syscall.SIGHUP
			switch {
			case slices.Contains(reopenSignals, sig), hangUp && s.survives:
				s.log.Info("signal ignored: there is no log file to open again, and certificates are read again by themselves", "signal", sig.String(),
					"fix", "rotate a file that standard error is written to with copytruncate; SIGTERM ends the server")
			case first == nil:
				first, at = sig, time.Now()
				text := "stopping; once more to end at once"
				if hangUp {
					text = "stopping: the terminal was closed"
				}
				s.log.Info(text, "signal", sig.String())
				s.stop(fmt.Errorf("stopped by %s", sig))
			case hangUp, (sig == first || first == syscall.SIGHUP) && time.Since(at) < sameSignal:
			default:
				s.log.Warn("ended at once; what was unfinished continues at the next start", "signal", sig.String())
				s.exit(128 + int(sig.(syscall.Signal)))
			}
		}
	}
}
