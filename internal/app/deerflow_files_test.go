package app

import (
	"context"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/deerflow/journal"
	"understudy/graph"
	"understudy/id"
	"understudy/run"
)

// The files of a thread go with it, by whatever route it is deleted, and those of others stay.
func TestFilesGoWithTheirThread(t *testing.T) {
	t.Parallel()
	srv, user := startDeerFlow(t, func(*Config) {})
	ann, ben := user("ann@example.com"), user("ben@example.com")
	// keep makes a thread of a user with a file, and returns its folder.
	keep := func(u *gatewayUser) (thread, folder string) {
		_, me := u.ask("GET", "/api/v1/auth/me", "")
		thread = u.must("POST", "/api/threads", `{}`, "thread_id")
		status, answer := u.ask("POST", "/api/threads/"+thread+"/uploads", "--b\r\nContent-Disposition: form-data; name=\"files\"; filename=\"a.txt\"\r\n\r\nx\r\n--b--\r\n", "Content-Type", "multipart/form-data; boundary=b")
		require.Equal(t, 200, status, answer)
		folder = srv.deerflow.Home.ThreadDir(gjson.Get(me, "id").String(), thread)
		require.DirExists(t, folder)
		return thread, folder
	}
	kept, keptFolder := keep(ann)
	for name, remove := range map[string]func(thread string) (int, string){
		"the Gateway's": func(thread string) (int, string) { return ann.ask("DELETE", "/api/threads/"+thread, "") },
		"LangGraph's":   func(thread string) (int, string) { return ann.ask("DELETE", "/threads/"+thread, "") },
		"several threads": func(thread string) (int, string) {
			return ann.ask("POST", "/threads/prune", `{"thread_ids":["`+thread+`"]}`)
		},
	} {
		thread, folder := keep(ann)
		status, answer := ben.ask("DELETE", "/threads/"+thread, "")
		require.Equal(t, 404, status, answer)
		require.DirExists(t, folder, name)
		status, answer = remove(thread)
		require.Less(t, status, 300, "%s: %s", name, answer)
		_, err := os.Stat(folder)
		require.ErrorIs(t, err, os.ErrNotExist, name)
	}
	require.DirExists(t, keptFolder)
	_, list := ann.ask("GET", "/api/threads/"+kept+"/uploads/list", "")
	require.Equal(t, int64(1), gjson.Get(list, "count").Int(), list)
}

// writes is a graph that writes a file into the folder of its thread when it begins, and again when it ends; it ends with its input, or when it is cancelled.
type writes struct {
	graph.Graph
	dir   func(user, thread string) string
	began chan struct{}
}

func (w *writes) Stream(ctx context.Context, inv graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		file := func() error {
			folder := filepath.Join(w.dir(journal.User(inv.Config.Config, inv.Context), string(inv.Thread)), "user-data", "outputs")
			return errors.Join(os.MkdirAll(folder, 0o700), os.WriteFile(filepath.Join(folder, "a.txt"), []byte("x"), 0o600))
		}
		if err := file(); err != nil {
			yield(graph.Event{}, err)
			return
		}
		if gjson.GetBytes(inv.Input, "wait").Bool() {
			w.began <- struct{}{}
			<-ctx.Done()
			yield(graph.Event{}, errors.Join(file(), ctx.Err()))
		}
	}
}

// What runs write into folders of threads that are gone by their end goes too: of stateless runs, and of tools that still ran when the thread was deleted. Threads that
// a server without the installation deletes are found later; folders of threads that were never in the database stay.
func TestFilesOfRunsGoWithTheirThread(t *testing.T) {
	t.Parallel()
	w := &writes{began: make(chan struct{})}
	srv, user := startDeerFlow(t, func(*Config) {}, func(s *Server) {
		w.dir = s.deerflow.Home.ThreadDir
		require.NoError(t, s.Register("writes", "", w))
	})
	ann := user("ann@example.com")
	_, me := ann.ask("GET", "/api/v1/auth/me", "")
	threads := filepath.Dir(srv.deerflow.Home.ThreadDir(gjson.Get(me, "id").String(), "x"))
	left := func() (names []string) {
		list, err := os.ReadDir(threads)
		if !errors.Is(err, os.ErrNotExist) {
			require.NoError(t, err)
		}
		for _, e := range list {
			names = append(names, e.Name())
		}
		return names
	}
	nothing := func(what string) {
		t.Helper()
		require.Eventually(t, func() bool { return len(left()) == 0 }, 20*time.Second, 10*time.Millisecond, what)
	}

	status, answer := ann.ask("POST", "/runs/wait", `{"assistant_id":"writes","input":{}}`)
	require.Equal(t, 200, status, answer)
	nothing("a stateless run")

	thread := ann.must("POST", "/api/threads", `{}`, "thread_id")
	ann.must("POST", "/threads/"+thread+"/runs", `{"assistant_id":"writes","input":{"wait":true}}`, "run_id")
	<-w.began
	require.Equal(t, []string{thread}, left())
	status, answer = ann.ask("DELETE", "/threads/"+thread, "")
	require.Equal(t, 204, status, answer)
	nothing("a run that still writes")

	thread = ann.must("POST", "/api/threads", `{}`, "thread_id")
	status, answer = ann.ask("POST", "/threads/"+thread+"/runs/wait", `{"assistant_id":"writes","input":{}}`)
	require.Equal(t, 200, status, answer)
	// What the run before wrote last may go a moment later.
	require.Eventually(t, func() bool { return slices.Equal(left(), []string{thread}) }, 20*time.Second, 10*time.Millisecond)
	require.Eventually(t, func() bool {
		at, _, err := srv.rows.Offset(t.Context(), "deerflow-files", id.Thread(thread))
		return err == nil && at != nil
	}, 20*time.Second, 10*time.Millisecond)
	// Another user's folder of that id, which came from elsewhere, is not the thread's.
	other := filepath.Join(filepath.Dir(filepath.Dir(threads)), "another", "threads", thread)
	require.NoError(t, os.MkdirAll(other, 0o700))
	foreign := filepath.Join(threads, "not-imported")
	require.NoError(t, os.Mkdir(foreign, 0o700))
	require.NoError(t, srv.rows.Runs().Write(t.Context(), func(tx run.Tx) error { return tx.DeleteThread(id.Thread(thread)) }))
	require.Eventually(t, func() bool { return slices.Equal(left(), []string{"not-imported"}) }, 20*time.Second, 10*time.Millisecond, left())
	require.DirExists(t, other)
}
