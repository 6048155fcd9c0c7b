package lead

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/require"

	"understudy/graph/agent"
	"understudy/graph/agent/mcp"
)

// answering serves tools with these names, and counts the sessions that begin.
func answering(t *testing.T, names ...string) (url string, sessions *atomic.Int64) {
	t.Helper()
	sessions = &atomic.Int64{}
	h := httptest.NewServer(sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server {
		s := sdk.NewServer(&sdk.Implementation{Name: "test", Version: "1"}, &sdk.ServerOptions{InitializedHandler: func(context.Context, *sdk.InitializedRequest) { sessions.Add(1) }})
		for _, name := range names {
			sdk.AddTool(s, &sdk.Tool{Name: name}, func(context.Context, *sdk.CallToolRequest, struct{}) (*sdk.CallToolResult, any, error) {
				return &sdk.CallToolResult{}, nil, nil
			})
		}
		return s
	}, nil))
	t.Cleanup(h.Close)
	return h.URL, sessions
}

func at(name, url string) Server {
	return Server{Name: name, Config: url, Open: func() (*mcp.Source, error) {
		if url == "" {
			return nil, errors.New("cannot be opened")
		}
		return mcp.New(mcp.Options{Name: name, URL: url, Prefix: true})
	}}
}

// Servers come, change, break and go: the agent has the tools of those that answer, and a session is kept as long as its configuration.
func TestServers(t *testing.T) {
	t.Parallel()
	one, sessions := answering(t, "a", "b")
	two, _ := answering(t, "c", "read_file")
	broken := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusTeapot) }))
	t.Cleanup(broken.Close)

	var log bytes.Buffer
	var list []Server
	var unreadable error
	now := time.Unix(1e9, 0)
	s := &servers{list: func() ([]Server, error) { return list, unreadable }, log: slog.New(slog.NewTextHandler(&log, nil)), now: func() time.Time { return now }}
	g := New(Options{})
	g.servers = s
	of := g.sourceFor([]agent.Middleware{{Tools: []agent.Tool{{Name: "two_read_file"}}}}, nil)[0]
	names := func() string {
		t.Helper()
		tools, err := of.Tools(t.Context())
		require.NoError(t, err)
		var out []string
		for _, t := range tools {
			out = append(out, t.Name)
		}
		return strings.Join(out, " ")
	}
	require.Empty(t, names())
	list = []Server{at("one", one), at("bad", broken.URL), at("none", ""), at("two", two)}
	require.Equal(t, "one_a one_b two_c", names(), "a name that the agent has already is left out")
	require.Equal(t, 1, strings.Count(log.String(), "does not answer"))
	require.Equal(t, 1, strings.Count(log.String(), "cannot be opened"))
	for range 20 {
		require.Equal(t, "one_a one_b two_c", names())
	}
	require.Equal(t, 1, strings.Count(log.String(), "does not answer"), "it rests")
	require.EqualValues(t, 1, sessions.Load())

	for n, rest := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute} {
		now = now.Add(rest - 1)
		names()
		require.Equal(t, n+1, strings.Count(log.String(), "does not answer"), "it rests for %s", rest)
		now = now.Add(1)
		require.Equal(t, "one_a one_b two_c", names())
		s.ending.Wait()
		require.Equal(t, n+2, strings.Count(log.String(), "does not answer"))
	}

	unreadable = errors.New("line 3")
	list = nil
	require.Equal(t, "one_a one_b two_c", names(), "as they were")
	names()
	require.Equal(t, 1, strings.Count(log.String(), "line 3"))
	unreadable = nil

	list = []Server{at("one", one), at("bad", two)}
	require.Equal(t, "one_a one_b bad_c bad_read_file", names(), "one that was corrected is asked at once")
	require.EqualValues(t, 1, sessions.Load())
	list = []Server{at("one", one+"/?changed")}
	require.Equal(t, "one_a one_b", names())
	require.EqualValues(t, 2, sessions.Load())

	// A run that is cancelled while a server starts is no fault of the server.
	asked, hold := make(chan struct{}), make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		select {
		case <-hold:
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(slow.Close)
	t.Cleanup(func() { close(hold) })
	list = append(list, at("slow", slow.URL))
	before := strings.Count(log.String(), "does not answer")
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	_, err := of.Tools(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, before, strings.Count(log.String(), "does not answer"))
	require.Zero(t, s.open["slow"].failed)
	require.NoError(t, g.Close())
	require.Empty(t, names(), "after the end")
	require.NotContains(t, fmt.Sprint(s.open), one)
}

// An answer does not wait for a server that has failed before: it has the tools of that one as soon as it answers.
func TestServerThatFailedIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	url, _ := answering(t, "a")
	hold, hanging := make(chan struct{}), false
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !hanging {
			http.Error(w, "no", http.StatusTeapot)
			return
		}
		<-hold
		http.Redirect(w, r, url, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(front.Close)
	now := time.Unix(1e9, 0)
	s := &servers{list: func() ([]Server, error) { return []Server{at("slow", front.URL)}, nil }, log: slog.New(slog.DiscardHandler), now: func() time.Time { return now }}
	t.Cleanup(s.close)
	names := func() (out []string) {
		tools, err := s.tools(t.Context())
		require.NoError(t, err)
		for _, t := range tools {
			out = append(out, t.Name)
		}
		return out
	}
	require.Empty(t, names())
	hanging, now = true, now.Add(serverRest)
	require.Empty(t, names())
	require.Empty(t, names(), "one try at a time")
	close(hold)
	s.ending.Wait()
	require.Equal(t, []string{"slow_a"}, names())
}
