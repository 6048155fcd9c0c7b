package app

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"understudy/graph"
	"understudy/internal/config"
	"understudy/internal/logtest"
	"understudy/internal/postgrestest"
	"understudy/internal/redistest"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// slow is a graph that says something, waits to be let go, and says more. Only Stream is used.
type slow struct {
	graph.Graph
	began chan struct{}
	goOn  chan struct{}
}

func (s slow) Stream(ctx context.Context, _ graph.Invocation) iter.Seq2[graph.Event, error] {
	return func(yield func(graph.Event, error) bool) {
		if !yield(graph.Event{Name: "values", Data: json.RawMessage(`{"at":1}`)}, nil) {
			return
		}
		s.began <- struct{}{}
		select {
		case <-s.goOn:
		case <-ctx.Done():
			yield(graph.Event{}, context.Cause(ctx))
			return
		}
		yield(graph.Event{Name: "values", Data: json.RawMessage(`{"at":2}`)}, nil)
	}
}

// serve runs a server on Postgres and Redis and returns its address.
func serve(t *testing.T, database, redis string, g graph.Graph) (url string) {
	t.Helper()
	settings, _, err := config.Load(config.Source{
		Mode: config.Serve, Flags: map[string]string{"port": "0", "database-url": database, "database-connections": "4", "redis-url": redis, "data": t.TempDir()},
		Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	return serveWith(t, settings, g)
}

func serveWith(t *testing.T, settings *config.Config, g graph.Graph) (url string) {
	t.Helper()
	return runWith(t, Config{Settings: settings}, "slow", g).url()
}

// runWith runs a server or a worker with a graph until the test ends.
func runWith(t *testing.T, c Config, name string, g graph.Graph) *Server {
	t.Helper()
	srv, err := New(t.Context(), c)
	require.NoError(t, err)
	require.NoError(t, srv.Register(name, "", g))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- srv.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	return srv
}

func call(t *testing.T, method, url, body string) (answer map[string]any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Less(t, resp.StatusCode, 300, "%s", text)
	_ = json.Unmarshal(text, &answer) // some answer nothing
	return answer
}

// What one server began another shows, streams and cancels.
func TestServersOnOneDatabase(t *testing.T) {
	t.Parallel()
	database, redis := postgrestest.Database(t), redistest.Start(t)
	g := slow{began: make(chan struct{}, 1), goOn: make(chan struct{})}
	a, b := serve(t, database, redis.URL, g), serve(t, database, redis.URL, g)
	thread, _ := call(t, http.MethodPost, a+"/threads", `{}`)["thread_id"].(string)
	run, _ := call(t, http.MethodPost, a+"/threads/"+thread+"/runs", `{"assistant_id":"slow","input":{}}`)["run_id"].(string)
	<-g.began
	require.Equal(t, "running", call(t, http.MethodGet, b+"/threads/"+thread+"/runs/"+run, "")["status"])

	resp, err := http.Get(b + "/threads/" + thread + "/runs/" + run + "/stream")
	require.NoError(t, err)
	defer resp.Body.Close()
	close(g.goOn)
	seen := false
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		seen = seen || lines.Text() == `data: {"at":2}`
	}
	require.True(t, seen, "the stream of a run on the other server")
	require.Equal(t, "success", call(t, http.MethodGet, b+"/threads/"+thread+"/runs/"+run, "")["status"])
	call(t, http.MethodGet, b+"/ok?check_db=1", "")
}

// A database that accepts connections and never answers delays no probe and no scrape for more than the documented two seconds, however many come at
// once, with connections that are open and with new ones.
func TestProbesOfASilentDatabase(t *testing.T) {
	t.Parallel()
	relay, database := postgrestest.NewRelay(t, postgrestest.Database(t))
	settings, _, err := config.Load(config.Source{
		// There are enough connections that some are idle when the database falls silent: loops of the server hold others.
		Mode: config.Serve, Flags: map[string]string{"port": "0", "database-url": database, "database-connections": "40", "data": t.TempDir()},
		Lookup: func(string) (string, bool) { return "", false },
	})
	require.NoError(t, err)
	address := serveWith(t, settings, saves{})
	t.Cleanup(relay.Forward) // before the server ends
	paths := map[string]int{"/readyz": 503, "/ok?check_db=1": 503, "/metrics": 200, "/metrics?format=json": 200, "/livez": 200, "/ok": 200}
	all := func(status func(path string) int) {
		var asked sync.WaitGroup
		for path := range paths {
			for range 3 {
				asked.Go(func() {
					began := time.Now()
					resp, err := http.Get(address + path)
					if !assert.NoError(t, err) {
						return
					}
					defer resp.Body.Close()
					_, err = io.Copy(io.Discard, resp.Body)
					assert.NoError(t, err)
					assert.Equal(t, status(path), resp.StatusCode, path)
					assert.Less(t, time.Since(began), 3*time.Second, path)
				})
			}
		}
		asked.Wait()
	}
	all(func(string) int { return 200 })
	relay.Silence()
	for range 2 { // the second time no connection is left
		all(func(path string) int { return paths[path] })
	}
	relay.Forward()
	require.Eventually(t, func() bool {
		resp, err := http.Get(address + "/readyz")
		require.NoError(t, err)
		defer resp.Body.Close()
		return resp.StatusCode == 200
	}, time.Minute, 20*time.Millisecond)
}

// A program that makes settings itself, and validates nothing, sees no password either.
func TestAddressThatWasNotValidated(t *testing.T) {
	t.Parallel()
	settings := config.Default(config.Serve)
	settings.Server.Port, settings.Storage.DatabaseURL = 0, "postgres://us:p@ss/w#rd@127.0.0.1:6543/us"
	_, err := New(t.Context(), Config{Settings: settings})
	require.ErrorContains(t, err, "percent-encode the password")
	require.NotContains(t, err.Error(), "w#rd")
	require.NotContains(t, err.Error(), "ss:")
}

// A Redis that refuses the server prevents its start, with an error that says what to fix. One that
// is down does not.
func TestRedisAtTheStart(t *testing.T) {
	t.Parallel()
	database := postgrestest.Database(t)
	open := func(flags map[string]string) (string, error) {
		var log logtest.Buffer
		flags["port"], flags["database-url"], flags["database-connections"] = "0", database, "2"
		settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
		require.NoError(t, err)
		srv, err := New(t.Context(), Config{Settings: settings, Log: slog.New(slog.NewJSONHandler(&log, nil))})
		if err == nil {
			require.NoError(t, srv.Close())
		}
		return log.String(), err
	}
	closed, address, ca := redistest.StartTLS(t, "--requirepass", "s3cret", "--databases", "2", "--user", "little", "on", ">p4ss", "~*", "+get", "--user", "documented", "on", ">secr3t", "~understudy:*", "+@read", "+@write", "+@connection", "+@transaction", "+evalsha", "+script|load")
	plain := redisOnPort(t)
	with := func(user, rest string) string { return "unix://" + user + closed.Socket + rest }
	for name, c := range map[string]struct {
		flags map[string]string
		want  string
	}{
		"no password":   {map[string]string{"redis-url": with("", "")}, "rejects the user or password"},
		"another":       {map[string]string{"redis-url": with(":wr0ng@", "")}, "rejects the user or password"},
		"no database":   {map[string]string{"redis-url": with(":s3cret@", "?db=7")}, "has no database with the number"},
		"no rights":     {map[string]string{"redis-url": with("little:p4ss@", "")}, "denies the user"},
		"no TLS there":  {map[string]string{"redis-url": "rediss://" + plain}, "write redis://"},
		"TLS there":     {map[string]string{"redis-url": "redis://:s3cret@" + address}, "write rediss://"},
		"no trust":      {map[string]string{"redis-url": "rediss://:s3cret@" + address}, "--redis-ca"},
		"not that host": {map[string]string{"redis-url": "rediss://:s3cret@" + strings.Replace(address, "127.0.0.1", "localhost", 1), "redis-ca": ca}, "--redis-ca"},
	} {
		began := time.Now()
		said, err := open(c.flags)
		require.Less(t, time.Since(began), 4*time.Second, name) // silence of Redis would take 5 s
		require.ErrorContains(t, err, c.want, name)
		require.ErrorContains(t, err, "check --redis-url / REDIS_URI", name)
		for _, secret := range []string{"s3cret", "wr0ng", "p4ss"} {
			require.NotContains(t, err.Error()+said, secret, name)
		}
		if strings.Contains(c.flags["redis-url"], address) {
			require.ErrorContains(t, err, address, name)
		}
	}
	for _, flags := range []map[string]string{{"redis-url": with(":s3cret@", "?db=1")}, {"redis-url": with("documented:secr3t@", "")}, {"redis-url": "rediss://:s3cret@" + address, "redis-ca": ca}, {"redis-url": "redis://" + plain}} {
		said, err := open(flags)
		require.NoError(t, err)
		require.NotContains(t, said, "ERROR")
	}
	said, err := open(map[string]string{"redis-url": "redis://:s3cret@127.0.0.1:1"})
	require.NoError(t, err)
	require.Contains(t, said, `"level":"ERROR","msg":"Redis does not respond; streams return 503`)
	require.Contains(t, said, "127.0.0.1:1")
	require.NotContains(t, said, "s3cret")
}

// redisOnPort starts a Redis that listens on a port, without TLS.
func redisOnPort(t *testing.T) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address = l.Addr().String()
	require.NoError(t, l.Close())
	redistest.Start(t, "--port", address[strings.LastIndex(address, ":")+1:], "--bind", "127.0.0.1")
	return address
}

// --search-timeout ends searches that no index answers, on either database.
func TestSearchTimeout(t *testing.T) {
	t.Parallel()
	for _, database := range []string{"", postgrestest.Database(t)} {
		flags := map[string]string{"port": "0", "data": t.TempDir(), "search-timeout": "1ns"}
		if database != "" {
			flags["database-url"], flags["database-connections"] = database, "4"
		}
		settings, _, err := config.Load(config.Source{Mode: config.Serve, Flags: flags, Lookup: func(string) (string, bool) { return "", false }})
		require.NoError(t, err)
		url := serveWith(t, settings, slow{began: make(chan struct{}, 1), goOn: make(chan struct{})})
		status, answer := send(t, http.MethodPost, url+"/threads/search", `{"values":{"a":1}}`)
		require.Contains(t, []int{422, 503}, status, answer) // it took too long, or waited too long for its turn
		status, _ = send(t, http.MethodPost, url+"/threads/search", `{}`)
		require.Equal(t, 200, status)
	}
}
