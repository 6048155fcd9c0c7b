package app

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/gobwas/ws/wsutil"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/gjson"

	"understudy/access"
	"understudy/auth"
	"understudy/storage/postgres/migratedtest"
)

// fuzzTimeVariable says how long TestIsolationOfAnyRequest sends requests, such as 10m; a few seconds without it.
const fuzzTimeVariable = "UNDERSTUDY_ISOLATION_TIME"

// world is a village and the model of who owns what in it.
type world struct {
	*village
	owner   map[string]string   // of an id, now; "" for what was deleted
	secrets map[string][]string // of a user, also those of resources that are gone
	views   map[string][]string // what a user saw of everything
	sent    int
	foreign int // of them about what belongs to others
}

func newWorld(t *testing.T, seed uint64, a Auth, flags map[string]string) *world {
	t.Helper()
	w := &world{village: newVillage(t, seed, a, flags), owner: map[string]string{}, secrets: map[string][]string{}, views: map[string][]string{}}
	for _, u := range w.users {
		w.moved(u)
	}
	return w
}

// view leaves out the number of threads: that of a run without a thread is deleted a while after the run was canceled.
func (w *world) view(u *villager) []string {
	w.t.Helper()
	return slices.DeleteFunc(w.village.view(u), func(text string) bool { return strings.HasPrefix(text, "/threads/count ") })
}

// moved notes what a user who has settled has.
func (w *world) moved(u *villager) {
	for _, value := range u.has {
		w.owner[value] = u.name
	}
	w.secrets[u.name] = append(w.secrets[u.name], u.secret)
	w.views[u.name] = w.view(u)
}

// draw fills a probe with ids of any users. plain has the same ones, but for those of others ids that do not exist; own: there are none of others.
func (w *world) draw(u *villager, p probe) (has, plain map[string]string, own bool) {
	has, plain, own = map[string]string{}, map[string]string{}, true
	used := p.path + p.body + strings.Join(p.headers, " ")
	of := w.users[w.random.IntN(len(w.users))]
	for _, key := range slices.Sorted(maps.Keys(u.has)) {
		from := of
		if w.random.IntN(4) == 0 { // ids of several users in one request
			from = w.users[w.random.IntN(len(w.users))]
		}
		has[key] = from.has[key]
		if w.owner[from.has[key]] == u.name {
			plain[key] = has[key]
			continue
		}
		plain[key] = unknown(map[string]string{key: from.has[key]})[key]
		if key == "NAME" {
			plain[key] = "nobody"
		}
		own = own && !strings.Contains(used, "{"+key+"}")
	}
	for _, m := range []map[string]string{has, plain} {
		m["MINE"] = u.conversation()
		for key, value := range u.has {
			m["OWN"+key] = value
		}
	}
	return has, plain, own
}

// send sends a probe and looks for what belongs to others in the answer.
func (w *world) send(u *villager, p probe, has map[string]string) answered {
	w.t.Helper()
	headers := slices.Clone(p.headers)
	for i := range headers {
		headers[i] = fill(headers[i], has)
	}
	path, body := fill(p.path, has), fill(p.body, has)
	a := w.ask(u.name, p.method, path, body, headers...)
	w.sent++
	for name, secrets := range w.secrets {
		for _, secret := range secrets {
			if name != u.name && strings.Contains(a.body, secret) {
				require.Failf(w.t, "leak", "%s reads what belongs to %s: %s %s %s: %s", u.name, name, p.method, path, body, a.body)
			}
		}
	}
	require.NotEqual(w.t, http.StatusInternalServerError, a.status, "%s %s %s: %s", p.method, path, body, a.body)
	return a
}

// probe sends a random request of a random user. What is about others is answered like what does not exist.
func (w *world) probe(probes []probe, silent map[string]bool) {
	w.t.Helper()
	u, p := w.users[w.random.IntN(len(w.users))], probes[w.random.IntN(len(probes))]
	has, plain, own := w.draw(u, p)
	if own {
		if !mayChange(p) && !slices.ContainsFunc(ofNoOwner, func(part string) bool { return strings.Contains(p.path, part) }) { // others wait
			w.send(u, p, has)
		}
		return
	}
	if w.random.IntN(20) == 0 {
		require.Equal(w.t, http.StatusUnauthorized, w.ask("", p.method, fill(p.path, has), fill(p.body, has)).status, "%s", p)
	}
	w.foreign++
	if mayChange(p) && w.names(u, p, has) { // the user may change what is theirs
		require.Equal(w.t, w.views[u.name], w.view(u), "others changed what belongs to %s", u.name)
		defer func() { w.views[u.name] = w.view(u) }()
	}
	got := w.send(u, p, has)
	if silent[p.String()] {
		return
	}
	want := w.send(u, p, plain)
	if got.body != want.body && (strings.HasSuffix(got.body, "(open)") || strings.HasSuffix(want.body, "(open)")) { // of a busy machine, which may need longer
		w.patience = 10 * time.Second
		got, want = w.send(u, p, has), w.send(u, p, plain)
		w.patience = 0
	}
	require.Equal(w.t, want.status, got.status, "%s, %s: %s, and for an id that does not exist %s", u.name, p, got.body, want.body)
	for _, a := range []*answered{&got, &want} { // whether the end of a stream came in time depends on how busy the machine is
		a.body = strings.TrimSuffix(a.body, "(open)")
	}
	if got.status >= 400 || strings.Contains(got.kind, "event-stream") {
		require.Equal(w.t, want.plain(), got.plain(), "%s, %s", u.name, p)
	}
}

// mayChange reports whether a probe may change what it names.
func mayChange(p probe) bool {
	return p.method != http.MethodGet || strings.Contains(p.path, "cancel_on_disconnect")
}

// names reports whether a probe names something of its user.
func (w *world) names(u *villager, p probe, has map[string]string) bool {
	for _, m := range placeholders.FindAllStringSubmatch(p.path+p.body+strings.Join(p.headers, " "), -1) {
		if m[1] == "MINE" || strings.HasPrefix(m[1], "OWN") || w.owner[has[m[1]]] == u.name {
			return true
		}
	}
	return false
}

var placeholders = regexp.MustCompile(`\{([A-Z]+)\}`)

// live lets a user do something of their own: everything once more, or a thread whose id another user then takes.
func (w *world) live() {
	w.t.Helper()
	n := w.random.IntN(len(w.users))
	u := w.users[n]
	if w.random.IntN(2) == 0 {
		require.Equal(w.t, w.views[u.name], w.view(u), "others changed what belongs to %s", u.name)
		w.must(u.name, "POST", "/runs/cancel", `{"status":"all"}`) // those that wait hold a place of the server
		w.users[n] = w.settle(u.name)
		w.moved(w.users[n])
		return
	}
	made := w.must(u.name, "POST", "/threads", `{"metadata":{"about":"`+u.secret+`"}}`)
	thread := made[strings.Index(made, `"thread_id":"`)+13:][:36]
	run := `{"assistant_id":"talk","input":{"note":"` + u.secret + `"},"stream_resumable":true,"stream_mode":["values","updates"]}`
	w.must(u.name, "POST", "/threads/"+thread+"/runs/stream", run)
	other := w.users[(n+1)%len(w.users)]
	w.must(u.name, "DELETE", "/threads/"+thread, "")
	w.must(other.name, "POST", "/threads", `{"thread_id":"`+thread+`"}`)
	w.views[u.name], w.views[other.name] = w.view(u), w.view(other) // counts
	for _, path := range []string{"", "/state", "/runs", "/messages", "/events", "/stream"} {
		for _, who := range []*villager{u, other} {
			a := w.send(who, probe{method: "GET", path: "/threads/" + thread + path, headers: []string{"Last-Event-ID", "0-0"}}, nil)
			require.NotContains(w.t, a.body, u.secret, "%s sees the thread that was there before", who.name)
		}
	}
}

// onSocket are commands of WebSockets.
var onSocket = []string{
	`"method":"subscription.subscribe","params":{"channels":["values","updates","messages","lifecycle","input","tasks"]}`,
	`"method":"subscription.subscribe","params":{"channels":["values","updates","messages"],"since":0}`,
	`"method":"state.get","params":{}`,
	`"method":"state.get","params":{"checkpoint_id":"{C}"}`,
	`"method":"state.listCheckpoints","params":{}`,
	`"method":"state.fork","params":{"checkpoint_id":"{C}","assistant_id":"talk"}`,
	`"method":"agent.getTree","params":{}`,
	`"method":"input.respond","params":{"namespace":[],"interrupt_id":"{Q}","response":"x","assistant_id":"talk"}`,
	`"method":"run.start","params":{"assistant_id":"talk","input":{"note":"stolen"}}`,
}

// socket opens a WebSocket on a thread of another user and sends random commands. Nothing of others arrives.
func (w *world) socket() {
	w.t.Helper()
	u, of := w.users[w.random.IntN(len(w.users))], w.users[w.random.IntN(len(w.users))]
	thread := of.has[[]string{"T", "I", "B"}[w.random.IntN(3)]]
	if owner := w.owner[thread]; owner == u.name || owner == "" {
		return
	}
	w.foreign++
	dialer := ws.Dialer{Header: ws.HandshakeHeaderHTTP{"Authorization": {"Bearer " + u.name}}}
	conn, _, _, err := dialer.Dial(w.t.Context(), "ws"+strings.TrimPrefix(w.url, "http")+"/threads/"+thread+"/stream/events")
	require.NoError(w.t, err)
	defer conn.Close()
	require.NoError(w.t, conn.SetDeadline(time.Now().Add(20*time.Second)))
	said, answered := "", 0
	n := 1 + w.random.IntN(4)
	for i := range n {
		command := fill(onSocket[w.random.IntN(len(onSocket))], of.has)
		said += command
		if wsutil.WriteClientMessage(conn, ws.OpText, []byte(fmt.Sprintf(`{"id":%d,%s}`, i+1, command))) != nil {
			break // it was closed meanwhile
		}
		w.sent++
	}
	for answered < n {
		text, err := wsutil.ReadServerText(conn)
		if err != nil {
			var late net.Error
			require.False(w.t, errors.As(err, &late) && late.Timeout(), "no answer to %s", said)
			break
		}
		for name, secrets := range w.secrets {
			for _, secret := range secrets {
				require.False(w.t, name != u.name && strings.Contains(string(text), secret), "%s reads what belongs to %s: %s: %s", u.name, name, said, text)
			}
		}
		if gjson.GetBytes(text, "id").Exists() {
			answered++
		}
	}
}

// Random users, resources and routes: no answer has anything of another user, none says more than that of an id that does not exist, and no request changes
// what belongs to others.
func TestIsolationOfAnyRequest(t *testing.T) {
	t.Parallel()
	limit := 5 * time.Second
	if text := os.Getenv(fuzzTimeVariable); text != "" {
		var err error
		limit, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	seed := uint64(time.Now().UnixNano())
	byOwner := native{owners{}, auth.Policy{Owner: &access.Owner{Key: "owner"}}}
	for name, start := range map[string]func(*testing.T) *world{
		"handlers, SQLite": func(t *testing.T) *world { t.Helper(); return newWorld(t, seed, owners{}, nil) },
		"Python, Postgres": func(t *testing.T) *world {
			t.Helper()
			return newWorld(t, seed+3, nil, map[string]string{"database-url": migratedtest.Database(t), "database-connections": "4"})
		},
		"owners, SQLite": func(t *testing.T) *world { t.Helper(); return newWorld(t, seed+1, byOwner, nil) },
		"owners, Postgres": func(t *testing.T) *world {
			t.Helper()
			return newWorld(t, seed+2, byOwner, map[string]string{"database-url": migratedtest.Database(t), "database-connections": "4"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := start(t)
			probes := append(probesOf(t, w.routes), more...)
			silent := map[string]bool{} // their answers may say that an id is taken
			for _, p := range telling {
				silent[p.String()] = true
			}
			probes = append(probes, telling...)
			for end := time.Now().Add(limit); time.Now().Before(end); {
				switch n := w.random.IntN(40); {
				case n == 0:
					w.live()
				case n < 3:
					w.socket()
				default:
					w.probe(probes, silent)
				}
			}
			for _, u := range w.users {
				require.Equal(t, w.views[u.name], w.view(u), "others changed what belongs to %s", u.name)
			}
			t.Logf("seed %d: %d requests, %d of them about what belongs to others", seed, w.sent, w.foreign)
		})
	}
}
