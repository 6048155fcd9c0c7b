package server

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/bridge"
	"understudy/id"
	"understudy/internal/fault"
	"understudy/run"
)

// slowRun is a run that succeeded, which the first calls of Get read only when their context has ended.
type slowRun struct {
	fakeRuns
	reads *int // that have to wait
}

func (s slowRun) Get(ctx context.Context, _ id.Thread, _ id.Run) (*run.Run, error) {
	if *s.reads > 0 {
		*s.reads--
		<-ctx.Done()
		return nil, fault.New(fault.Unavailable, "the database is slow")
	}
	x := s.one()
	x.Status = run.Success
	return x, nil
}

func slowly(reads int) func(*Options) {
	return func(o *Options) {
		o.Runs = slowRun{o.Runs.(fakeRuns), &reads}
		o.Heartbeat = 20 * time.Millisecond
	}
}

// rates makes an ended run with feedback keys that a client follows.
func rates(w *world) {
	w.follow = func() run.Follower {
		x := fakeRuns{w.services}.one()
		x.Kwargs.FeedbackKeys = json.RawMessage(`["k"]`)
		return &rateable{newFollower(
			func(context.Context) ([]*bridge.Record, error) {
				return []*bridge.Record{record(1, "values", `{}`)}, io.EOF
			},
			func(context.Context) (run.Result, error) { return run.Result{Values: json.RawMessage(`{"a":1}`)}, nil },
			func(bool) {},
		), x}
	}
}

type rateable struct {
	run.Follower
	run *run.Run
}

func (r *rateable) Run() *run.Run { return r.run }

// The addresses of a run come after however many heartbeats, and once; those of a result too.
func TestAddressesAreAskedForAgain(t *testing.T) {
	t.Parallel()
	for _, reads := range []int{0, 1, 3} {
		w := setup(t, slowly(reads))
		rates(w)
		_, text := w.ask(t, "GET", runsPath+"/"+someRun+"/stream", "", "Last-Event-Id", "0")
		require.Equal(t, 1, strings.Count(text, "event: feedback"), text)
		require.Equal(t, 1, strings.Count(text, "event: values"), text)
		require.Contains(t, text, ratingPath)
	}
	w := setup(t, slowly(1)) // more than Patience
	rates(w)
	_, text := w.ask(t, "GET", runsPath+"/"+someRun+"/join", "")
	require.Equal(t, 1, strings.Count(text, "__feedback__"), text)
}

// Addresses are for who may write the thread.
func TestAddressesNeedTheRightToWrite(t *testing.T) {
	t.Parallel()
	for name, may := range map[string]func() (bool, error){
		"all": nil, "some": func() (bool, error) { return true, nil }, "others": func() (bool, error) { return false, nil },
		"unknown": func() (bool, error) { return true, fault.New(fault.Unavailable, "not now") },
	} {
		w := setup(t, slowly(0), func(o *Options) {
			if may != nil {
				o.Ratings.May = func(_ context.Context, asked id.Thread) (bool, error) {
					require.EqualValues(t, someThread, asked)
					return may()
				}
			}
		})
		rates(w)
		for _, path := range []string{"/stream", "/join"} {
			res, text := w.ask(t, "GET", runsPath+"/"+someRun+path, "", "Last-Event-Id", "0")
			require.Equal(t, http.StatusOK, res.StatusCode)
			require.Equal(t, name == "all" || name == "some", strings.Contains(text, ratingPath), name+text)
		}
	}
}
