package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"understudy/run"
	"understudy/server/internal/web"
	"understudy/store"
	"understudy/thread"
)

// slow services read until their context ends.
type slow struct {
	begun chan struct{}
	ended chan error
}

func (s slow) read(ctx context.Context) error {
	s.begun <- struct{}{}
	select {
	case <-ctx.Done():
		s.ended <- context.Cause(ctx)
	case <-time.After(10 * time.Second):
		s.ended <- nil
	}
	return context.Cause(ctx)
}

type slowItems struct {
	fakeItems
	slow
}

func (s slowItems) Search(ctx context.Context, _ store.Search, _ *bool) ([]*store.Item, error) {
	return nil, s.read(ctx)
}

func (s slowItems) Namespaces(ctx context.Context, _ store.Namespaces) ([][]string, error) {
	return nil, s.read(ctx)
}

type slowThreads struct {
	fakeThreads
	slow
}

func (s slowThreads) Search(ctx context.Context, _ thread.Search) ([]*thread.View, bool, error) {
	return nil, false, s.read(ctx)
}

func (s slowThreads) Count(ctx context.Context, _ thread.Search) (int, error) {
	return 0, s.read(ctx)
}

type slowCrons struct {
	fakeCrons
	slow
}

func (s slowCrons) Search(ctx context.Context, _ run.CronQuery) ([]*run.Cron, bool, error) {
	return nil, false, s.read(ctx)
}

func (s slowCrons) Count(ctx context.Context, _ run.CronQuery) (int, error) {
	return 0, s.read(ctx)
}

// A client that leaves ends what is read for it. The connection of one that stays serves its next request.
func TestLeavingEndsReads(t *testing.T) {
	t.Parallel()
	s := slow{make(chan struct{}, 1), make(chan error, 1)}
	w := setup(t, func(o *Options) {
		f := o.Items.(fakeItems).services
		o.Items, o.Threads, o.Crons = slowItems{fakeItems{f}, s}, slowThreads{fakeThreads{f}, s}, slowCrons{fakeCrons{f}, s}
	})
	for _, path := range []string{"/store/items/search", "/store/namespaces", "/threads/search", "/threads/count", "/runs/crons/search", "/runs/crons/count"} {
		conn, err := net.Dial("tcp", w.addr)
		require.NoError(t, err)
		const body = `{"namespace_prefix":["a"],"limit":5}`
		fmt.Fprintf(conn, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", path, len(body), body)
		<-s.begun
		began := time.Now()
		require.NoError(t, conn.Close())
		require.ErrorIs(t, <-s.ended, web.ErrLeft, path)
		require.Less(t, time.Since(began), 5*time.Second, path)
	}

	quick := setup(t)
	for range 3 {
		res, _ := quick.ask(t, "POST", "/store/items/search", `{"namespace_prefix":["a"],"limit":5}`)
		require.Equal(t, http.StatusOK, res.StatusCode)
	}
}
