package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every command that waits for another program that does not answer says so before it gives up.
func TestNoCommandIsSilent(t *testing.T) {
	t.Parallel()
	address := acceptsOnly(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "langgraph.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"graphs": {"a": {"url": "http://127.0.0.1:1"}}}`), 0o600))
	database, server := "postgres://me:secret@"+address+"/d?sslmode=disable", "http://"+address
	for _, args := range [][]string{
		{"import", "--from", database, "--data", filepath.Join(dir, "a")},
		{"import", "--from", server, "--data", filepath.Join(dir, "b")},
		{"export", "--to", "out.sqlite", "--database-url", database},
		{"keys", "list", "--database-url", database},
		{"audit", "--database-url", database},
		{"doctor", "--config", file, "--database-url", database, "--port", "0"},
		{"doctor", "--config", file, "--database-url", database, "--port", "0", "--json"},
		{"threads", "--url", server},
		{"runs", "01a206fb-8dce-76de-9933-4f6ae92099a6", "--url", server, "--json"},
		{"chat", "--url", server},
	} {
		t.Run(strings.Join(args[:2], " "), func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			out, said := newListener(" …\n")
			root := newRoot(out, out)
			root.SetArgs(args)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = root.ExecuteContext(ctx) // nothing answers
			}()
			select {
			case <-said:
			case <-ended:
				require.FailNow(t, "it waited without a word", "it wrote %q", out.String())
			}
			cancel()
			<-ended
			require.NotContains(t, out.String(), "secret")
		})
	}
}

// An import whose source stops answering in the middle names what it waits for, and how far it is; when the source dies, it says how to continue.
func TestAnImportFromAServerThatHangs(t *testing.T) {
	t.Parallel()
	hangs, dies := make(chan struct{}, 1), make(chan struct{})
	source := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/threads/search":
			_, _ = io.WriteString(w, `[{"thread_id":"01a206fb-8dce-76de-9933-4f6ae92099a6","status":"idle"}]`)
		case "/threads/count":
			_, _ = io.WriteString(w, "1")
		case "/threads/01a206fb-8dce-76de-9933-4f6ae92099a6/history":
			select {
			case hangs <- struct{}{}:
			default: // tried again
			}
			<-dies
			panic(http.ErrAbortHandler)
		default:
			_, _ = io.WriteString(w, "[]")
		}
	}))
	defer source.Close()
	out, said := newListener("waiting for " + source.URL + " to answer POST /threads/01a206fb-8dce-76de-9933-4f6ae92099a6/history …\n")
	root := newRoot(out, out)
	root.SetArgs([]string{"import", "--from", source.URL, "--data", filepath.Join(t.TempDir(), "d")})
	failed := make(chan error, 1)
	go func() { failed <- root.ExecuteContext(t.Context()) }()
	<-hangs
	began := time.Now()
	select {
	case <-said:
	case err := <-failed:
		require.FailNow(t, "it ended", "%v: %s", err, out)
	}
	require.Less(t, time.Since(began), 3*time.Second)
	close(dies)
	require.ErrorContains(t, <-failed, "does not answer any more (/threads/01a206fb-8dce-76de-9933-4f6ae92099a6/history: EOF); run this again when it answers, it continues where it stopped")
	require.Contains(t, out.String(), "threads: 0 of 1\n")
}

// acceptsOnly returns an address where connections are accepted and nothing is answered.
func acceptsOnly(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// listener notices when a text is written.
type listener struct {
	mu   sync.Mutex // guards all below
	text strings.Builder
	want string
	said chan struct{} // closed when want was written; nil afterwards
}

func newListener(want string) (l *listener, said <-chan struct{}) {
	l = &listener{want: want, said: make(chan struct{})}
	return l, l.said
}

func (l *listener) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	if l.said != nil && strings.Contains(l.text.String(), l.want) {
		close(l.said)
		l.said = nil
	}
	return len(p), nil
}

func (l *listener) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
