package app

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access/audit"
	"understudy/thread"
)

// between is a storage that calls a function once after the next search of threads: what else happens between the read and the write of a request.
type between struct {
	thread.Store
	next atomic.Pointer[func()]
}

func (b *between) Threads(ctx context.Context, q thread.Query) ([]*thread.Thread, error) {
	list, err := b.Store.Threads(ctx, q)
	if do := b.next.Swap(nil); do != nil {
		(*do)()
	}
	return list, err
}

// handing is a server on which channels give threads to users.
type handing struct {
	*testing.T
	srv     *Server
	store   *between
	channel *gatewayUser
}

func startHanding(t *testing.T) *handing {
	t.Helper()
	h := &handing{T: t, store: &between{}}
	srv, user := startDeerFlow(t, func(*Config) {}, func(s *Server) {
		h.store.Store = s.threads.Store
		s.threads.Store = h.store
	})
	h.srv, h.channel = srv, user("")
	return h
}

// as sends a request of a channel that names a user.
func (h *handing) as(user, path, body string) (status int, answer string) {
	h.Helper()
	return h.channel.ask("POST", path, body, "X-Deerflow-Internal-Token", "the token of channels", "X-Deerflow-Owner-User-Id", user, "Cookie", "csrf_token=a", "X-Csrf-Token", "a")
}

// create creates a thread, or takes it over.
func (h *handing) create(user, thread string) int {
	h.Helper()
	status, answer := h.as(user, "/api/threads", `{"thread_id":"`+thread+`"}`)
	require.Contains(h, []int{200, 409}, status, answer)
	return status
}

// keep makes a thread of alice with a file.
func (h *handing) keep(thread string) {
	h.Helper()
	require.Equal(h, 200, h.create("alice", thread))
	h.write("alice", thread, "of alice")
}

// begin begins a run of alice that lasts until the test is over.
func (h *handing) begin(thread string) {
	h.Helper()
	status, answer := h.as("alice", "/threads/"+thread+"/runs", `{"assistant_id":"waits","input":{}}`)
	require.Equal(h, 200, status, answer)
	h.Cleanup(func() { // the end of the server would wait for it
		status, answer := h.as("alice", "/threads/"+thread+"/runs/"+gjson.Get(answer, "run_id").String()+"/cancel?wait=true", "")
		require.Less(h, status, 300, answer)
	})
}

func (h *handing) write(user, thread, text string) {
	h.Helper()
	folder := filepath.Join(h.srv.deerflow.Home.ThreadDir(user, thread), "user-data", "outputs")
	require.NoError(h, os.MkdirAll(folder, 0o700))
	require.NoError(h, os.WriteFile(filepath.Join(folder, "a.txt"), []byte(text), 0o600))
}

// files returns what each user has of a thread.
func (h *handing) files(thread string) map[string]string {
	h.Helper()
	found := map[string]string{}
	for _, user := range h.srv.deerflow.Home.Users() {
		text, err := os.ReadFile(filepath.Join(h.srv.deerflow.Home.ThreadDir(user, thread), "user-data", "outputs", "a.txt"))
		if err == nil {
			found[user] = string(text)
		}
	}
	return found
}

func (h *handing) owner(id string) string {
	h.Helper()
	answer := ""
	for _, user := range []string{"alice", "bob", "carol"} {
		_, answer = h.as(user, "/api/threads/search", `{}`)
		if gjson.Get(answer, `#(thread_id=="`+id+`")`).Exists() {
			return user
		}
	}
	require.Fail(h, "no owner", answer)
	return ""
}

const handed = "11111111-1111-4111-8111-111111111111"

// A thread is not given away while a run of it is active, also when that begins while the request is handled: its files stay.
func TestChannelsTakeNoThreadWithARun(t *testing.T) {
	t.Parallel()
	h := startHanding(t)
	h.keep(handed)
	begin := func() { h.begin(handed) }
	h.store.next.Store(&begin)
	require.Equal(t, 409, h.create("bob", handed))
	require.Equal(t, 409, h.create("bob", handed))
	require.Equal(t, "alice", h.owner(handed))
	require.Equal(t, map[string]string{"alice": "of alice"}, h.files(handed))
}

// Of two requests that take a thread over at once one gets it, and its files go where it goes.
func TestChannelsTakeAThreadAtOnce(t *testing.T) {
	t.Parallel()
	h := startHanding(t)
	h.keep(handed)
	bob := func() { require.Equal(t, 200, h.create("bob", handed)) }
	h.store.next.Store(&bob)
	require.Equal(t, 409, h.create("carol", handed))
	require.Equal(t, "bob", h.owner(handed))
	require.Equal(t, map[string]string{"bob": "of alice"}, h.files(handed))
	require.Equal(t, 200, h.create("carol", handed))
	require.Equal(t, map[string]string{"carol": "of alice"}, h.files(handed))

	var details []string
	list, err := h.srv.rows.Audit(t.Context(), audit.Query{Event: audit.ThreadOwner, Limit: 9})
	require.NoError(t, err)
	for _, e := range list {
		require.Equal(t, "thread "+handed, e.Resource)
		require.NotEmpty(t, e.Source)
		require.False(t, e.At.IsZero())
		details = append(details, e.Identity+": "+e.Detail)
	}
	require.Equal(t, []string{
		`bob: a channel gave the thread of user "alice" to user "bob"`, `carol: a channel gave the thread of user "bob" to user "carol"`,
	}, details)
}

// Files that could not be moved when the thread was given away are moved by the next request, of the same user or of another one. None are given away that the user had.
func TestChannelsMoveFilesLater(t *testing.T) {
	t.Parallel()
	for _, next := range []string{"bob", "carol"} {
		h := startHanding(t)
		h.keep(handed)
		blocked := filepath.Join(h.srv.deerflow.Home.UserDir("bob"), "threads")
		require.NoError(t, os.MkdirAll(filepath.Dir(blocked), 0o700))
		require.NoError(t, os.WriteFile(blocked, nil, 0o600)) // no folder can be made there
		status, answer := h.as("bob", "/api/threads", `{"thread_id":"`+handed+`"}`)
		require.Equal(t, 500, status, answer)
		require.Equal(t, "bob", h.owner(handed))
		require.Equal(t, map[string]string{"alice": "of alice"}, h.files(handed))
		require.NoError(t, os.Remove(blocked))
		require.Equal(t, 200, h.create(next, handed))
		require.Equal(t, map[string]string{next: "of alice"}, h.files(handed))
		require.Equal(t, 200, h.create(next, handed))
	}

	h := startHanding(t)
	require.Equal(t, 200, h.create("alice", handed))
	h.write("bob", handed, "of bob")
	begin := func() { h.begin(handed) } // the request fails after this
	h.store.next.Store(&begin)
	require.Equal(t, 409, h.create("bob", handed))
	require.Equal(t, map[string]string{"bob": "of bob"}, h.files(handed))
}

// What users see of a thread, and what they can set in it, has nothing of its former owner.
func TestFormerOwnersStayHidden(t *testing.T) {
	t.Parallel()
	h := startHanding(t)
	h.keep(handed)
	h.write("carol", handed, "of carol")
	require.Equal(t, 200, h.create("bob", handed))
	status, answer := h.as("bob", "/api/threads/search", `{}`)
	require.Equal(t, 200, status)
	require.False(t, strings.Contains(answer, "alice"), answer)
	status, answer = h.as("bob", "/api/threads", `{"thread_id":"22222222-2222-4222-8222-222222222222","metadata":{"former_user_id":"carol"}}`)
	require.Equal(t, 200, status, answer)
	require.NotContains(t, answer, "carol")
}
