package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/schollz/progressbar/v3"

	"understudy/internal/loop"
)

// How long a command may be silent: on a terminal, where a sign is taken away again, and elsewhere, such as in a log, at first and later. stillEvery is how often
// a command asks why it waits.
const (
	patientFor = time.Second
	quietFor   = 2 * time.Second
	quietAgain = 3 * time.Second
	stillEvery = 10 * time.Second
)

// reasonAfter is how long a command waits for a server before it asks why.
const reasonAfter = 3 * time.Second

// sign shows that something is still running: on a terminal a sign after patientFor, which end takes away; elsewhere a line after quietFor, and then
// every quietAgain.
type sign struct {
	out  io.Writer // standard error, where what is printed may be read by a program
	stop func()

	mu  sync.Mutex               // guards out and bar
	bar *progressbar.ProgressBar // nil: not shown
}

// waitSign begins a sign, and returns what ends it, which may be called again.
func waitSign(out io.Writer, what string) (end func()) { return newSign(out, always(what)).end }

// always returns the same text.
func always(text string) func() string { return func() string { return text } }

// newSign begins a sign of what is done, which may change.
func newSign(out io.Writer, what func() string) *sign {
	s := &sign{out: out}
	if !isTerminal(out) {
		began, again := time.Now(), false
		s.stop = loop.Repeat(quietFor, quietAgain, func() {
			if again {
				s.note(fmt.Sprintf("still %s, for %s", what(), time.Since(began).Round(time.Second)))
				return
			}
			again = true
			s.note(what() + " …")
		})
		return s
	}
	s.stop = loop.Repeat(patientFor, 100*time.Millisecond, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.bar == nil {
			s.bar = progressbar.NewOptions(-1, progressbar.OptionSetWriter(out), progressbar.OptionSetDescription(what()), progressbar.OptionClearOnFinish(),
				progressbar.OptionSetElapsedTime(true), progressbar.OptionSpinnerType(14))
		}
		s.bar.Describe(what())
		_ = s.bar.Add(1)
	})
	return s
}

// note writes a line without ending the sign.
func (s *sign) note(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		_ = s.bar.Clear()
	}
	fmt.Fprintln(s.out, text)
}

func (s *sign) end() {
	s.stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.bar != nil {
		_ = s.bar.Finish()
		s.bar = nil
	}
}

// waitSignWhy is newSign for what may wait for a reason that can be found: it shows what why returns after reasonAfter, and later what else it returns. why is
// not called after the end, and its context ends then; "" is no reason.
func waitSignWhy(ctx context.Context, out io.Writer, what func() string, why func(context.Context) string) *sign {
	ctx, cancel := context.WithCancel(ctx)
	s, shown := newSign(out, what), ""
	asking := loop.Repeat(reasonAfter, stillEvery, func() {
		if text := why(ctx); text != "" && text != shown && ctx.Err() == nil {
			shown = text
			s.note(text)
		}
	})
	running := s.stop
	s.stop = func() {
		cancel()
		asking()
		running()
	}
	return s
}
