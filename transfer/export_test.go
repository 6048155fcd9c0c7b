package transfer

import (
	"context"
	"errors"
	"iter"
	"testing"

	"github.com/stretchr/testify/require"
)

// sealed is a source of two threads that cannot be read, such as an encrypted one without its key.
type sealed struct {
	Source
	err error
}

func (s sealed) CountThreads(context.Context) (int, error) { return 2, nil }

func (s sealed) Threads(context.Context) iter.Seq2[*Thread, error] {
	return func(yield func(*Thread, error) bool) { yield(nil, s.err) }
}

// untouched is a sink and a progress that nothing may begin.
type untouched struct {
	Sink
	t *testing.T
}

func (u untouched) Prepare(context.Context) error { u.t.Error("the sink was written to"); return nil }
func (u untouched) Begin(string, int)             { u.t.Error("progress was shown") }
func (u untouched) Step(string)                   {}
func (u untouched) End()                          {}

// An export that can read nothing fails before it shows numbers or writes.
func TestExportOfWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	want := errors.New("encrypted")
	x := Exporter{Source: sealed{err: want}, Progress: untouched{t: t}}
	_, err := x.Run(t.Context(), untouched{t: t})
	require.ErrorIs(t, err, want)
}
