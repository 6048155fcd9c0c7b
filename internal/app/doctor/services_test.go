package doctor

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"understudy/internal/config"
	"understudy/internal/fleet"
	"understudy/internal/postgrestest"
	"understudy/internal/redistest"
	"understudy/storage/postgres"
)

func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }

// Where the first start, or that of a new version, would fail for want of rights or of a schema, doctor says so before.
func TestExamineDatabase(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.flags["database-url"] = postgrestest.Database(t)
	examine := func(address string) string {
		p.flags["database-url"] = address
		return p.examine()
	}
	owner := p.flags["database-url"]
	conn, err := pgx.Connect(t.Context(), owner)
	require.NoError(t, err)
	exec := func(sql string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	exec("CREATE ROLE small LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY small; DROP ROLE small")
		require.NoError(t, err)
		require.NoError(t, conn.Close(context.Background()))
	})
	small := strings.Replace(owner, "postgres@", "small@", 1)

	require.Contains(t, examine(owner), "ok database: no tables of this program yet")
	require.NotContains(t, examine(owner), "pgvector", "nothing needs it")
	require.Contains(t, examine(owner), "ok clock: ")
	require.Contains(t, examine(owner+"&options=-csearch_path%3Dmine"), "problem database: no schema of the search_path (mine) exists")
	require.Contains(t, examine(small), `problem database: user small may not make tables in schema public, and the next start has to → as the owner of the schema: GRANT CREATE, USAGE ON SCHEMA "public" TO "small"`)
	exec("GRANT CREATE, USAGE ON SCHEMA public TO small")
	require.Contains(t, examine(small), "ok database: no tables")
	require.Contains(t, examine(owner+"&options=-cdefault_transaction_read_only%3Don"), "problem database: the database is read-only")

	store, err := postgres.Open(t.Context(), postgres.Options{URL: owner, Connections: 2})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Contains(t, examine(owner+"&options=-cdefault_transaction_read_only%3Don"), "problem database: the database is read-only: nothing can be saved → name the primary", "with nothing to migrate")
	exec("GRANT SELECT ON ALL TABLES IN SCHEMA public TO small")
	require.Contains(t, examine(small), "answers →", "who has nothing to change needs no right to change")
	exec("DELETE FROM understudy_migrations WHERE number = (SELECT max(number) FROM understudy_migrations)")
	require.Contains(t, examine(small), "problem database: the tables belong to postgres, and the next start, as small, has to change them")
	require.Contains(t, examine(owner), "the next start migrates it")
}

func TestExamineRedis(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.flags["database-url"] = "postgres://us@127.0.0.1:1/us"
	examine := func(address string) string {
		p.flags["redis-url"] = address
		text := p.examine()
		for _, secret := range []string{"s3cret", "wr0ng"} {
			require.NotContains(t, text, secret)
		}
		return text
	}
	redis := redistest.Start(t, "--requirepass", "s3cret", "--user", "mute", "on", ">s3cret", "~understudy:*", "+@read", "+@write", "+@connection", "+evalsha", "+script|load")
	with := func(user string) string { return "unix://" + user + redis.Socket }
	text := examine(with(":s3cret@"))
	require.Contains(t, text, "ok redis: redis on "+redis.Socket+" responds, version ")
	require.NotContains(t, text, "maxmemory")
	require.Contains(t, text, "problem database: database us on 127.0.0.1:1: nothing listens there → start Postgres there")
	require.Contains(t, examine(with(":wr0ng@")), "problem redis: redis on "+redis.Socket+" rejects the user or password")
	require.Contains(t, examine(with("")), "correct --redis-url / REDIS_URI")
	require.Contains(t, examine(with("mute:s3cret@")), "warning redis: ")
	require.Contains(t, examine("redis://:s3cret@127.0.0.1:1"), "problem redis: redis on 127.0.0.1:1 does not respond")
	require.Contains(t, examine("bar"), "problem config: --redis-url: an address looks like")
	delete(p.flags, "redis-url")
	require.Contains(t, p.examine(), "ok redis: not configured")
	cluster := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-port", freePort(t))
	isCluster := "problem redis: redis on " + cluster.Socket + " is a cluster"
	require.Contains(t, examine(cluster.URL), isCluster, "one without slots")
	require.NoError(t, cluster.Client().ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	require.Eventually(t, func() bool {
		return strings.Contains(cluster.Client().ClusterInfo(t.Context()).Val(), "cluster_state:ok")
	}, 30*time.Second, 10*time.Millisecond)
	require.Contains(t, examine(cluster.URL), isCluster)
	evicts := redistest.Start(t, "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru")
	require.Contains(t, examine(evicts.URL), "warning redis: redis on "+evicts.Socket+" has maxmemory-policy allkeys-lru")
	full := redistest.Start(t, "--maxmemory", "1", "--maxmemory-policy", "noeviction")
	require.Contains(t, examine(full.URL), "problem redis: redis on "+full.Socket+" is full (")
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", "1")
	require.Contains(t, examine(replica.URL), "problem redis: redis on "+replica.Socket+" is a replica")
	delete(p.flags, "database-url")
	require.Contains(t, p.examine(), "warning redis: Redis is not used")
	for version, old := range map[string]bool{"6.2.0": false, "6.0.16": true, "5.0": true, "7": false, "8.1.2": false, "dragonfly": false} {
		require.Equal(t, old, tooOld(version), version)
	}
}

// freePort returns a port that nothing listened on a moment ago.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	require.NoError(t, ln.Close())
	return port
}

// Findings are reported at once, and slow checks come last.
func TestExamineTellsAsItFinds(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.write("bin/python", "#!/bin/sh\nsleep 20\n")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var checks []string
	all := Examine(ctx, Examination{
		Source:  config.Source{Mode: config.Serve, File: filepath.Join(p.dir, "langgraph.json"), Flags: p.flags, Lookup: func(string) (string, bool) { return "", false }},
		Environ: p.environ, Import: 20 * time.Second,
		Found: func(f Finding) {
			checks = append(checks, f.Check)
			if f.Check == "port" {
				cancel() // Python is not waited for
			}
		},
	})
	require.Len(t, all, len(checks))
	require.Equal(t, []string{"port", "python"}, checks[len(checks)-2:])
	require.Contains(t, checks, "data")
}

// A difference of more than a second is a warning that says which clock is behind.
func TestExamineClock(t *testing.T) {
	t.Parallel()
	for ahead, want := range map[time.Duration]string{
		0: "agree", time.Second: "agree", -time.Second: "agree", 90 * time.Second: "is 1m30s ahead of that of the database", -1250 * time.Millisecond: "is 1.3s behind that of the database",
	} {
		d := &doctor{}
		d.clock(ahead)
		require.Len(t, d.findings, 1)
		require.Contains(t, d.findings[0].Text, want)
		require.Equal(t, strings.HasPrefix(want, "is"), d.findings[0].Verdict == Warning)
		require.Equal(t, d.findings[0].Verdict == Warning, d.findings[0].Fix != "")
	}
}

// A configuration whose live streams are not where those of a server of the same database are is warned of, with what differs.
func TestServersApart(t *testing.T) {
	t.Parallel()
	cfg := &config.Config{Streams: config.Streams{RedisURL: "redis://:secret@cache", RedisPrefix: "mine"}}
	report := func(live string, age time.Duration) []fleet.Report {
		body, err := json.Marshal(fleet.Server{ID: "S", Host: "there", Live: live})
		require.NoError(t, err)
		return []fleet.Report{{Server: "S", At: time.Now().Add(-age), Body: body}}
	}
	for live, want := range map[string]string{
		fleet.Place(true, "mine"): "", "": "",
		fleet.Place(true, "theirs"): `--redis-prefix is "mine" here and "theirs" there`,
		fleet.Place(false, ""):      "the other has no Redis",
	} {
		d := &doctor{}
		d.apart(cfg, report(live, 0))
		if want == "" {
			require.Empty(t, d.findings)
			continue
		}
		require.Len(t, d.findings, 1)
		require.Equal(t, Warning, d.findings[0].Verdict)
		require.Contains(t, d.findings[0].Text, want)
		require.Contains(t, d.findings[0].Fix, "--redis-prefix")
		require.NotContains(t, d.findings[0].Text+d.findings[0].Fix, "secret")
		d = &doctor{}
		d.apart(cfg, report(live, time.Hour))
		require.Empty(t, d.findings, "that server is gone")
	}
	for want, body := range map[string][]byte{"was not checked": nil, "the report of server S is damaged": []byte("{")} {
		d := &doctor{}
		d.apart(cfg, []fleet.Report{{Server: "S", At: time.Now(), Body: body}})
		require.Len(t, d.findings, 1)
		require.Contains(t, d.findings[0].Text, want)
		d = &doctor{}
		d.apart(cfg, []fleet.Report{{Server: "S", At: time.Now().Add(-time.Hour), Body: body}})
		require.Empty(t, d.findings)
	}
}

// That no server executes runs is reported of those that live, and while none does of the configuration.
func TestExecuted(t *testing.T) {
	t.Parallel()
	report := func(s fleet.Server, age time.Duration) fleet.Report {
		body, err := json.Marshal(s)
		require.NoError(t, err)
		return fleet.Report{Server: s.ID, At: time.Now().Add(-age), Body: body}
	}
	serves, executes := report(fleet.Server{ID: "a"}, 0), report(fleet.Server{ID: "b", Jobs: 4, Graphs: []string{"quick", "slow"}}, 0)
	others := report(fleet.Server{ID: "c", Jobs: 4, Graphs: []string{"slow", "other"}}, 0)
	for name, c := range map[string]struct {
		concurrency int
		reports     []fleet.Report
		want        string
	}{
		"alone":                       {-1, nil, ""},
		"alone, executes none":        {0, nil, "--concurrency is 0"},
		"one that serves":             {-1, []fleet.Report{serves}, "of the 1 that run on the database none does"},
		"with a worker":               {0, []fleet.Report{serves, executes}, ""},
		"a worker that died":          {0, []fleet.Report{report(fleet.Server{ID: "b", Jobs: 4}, time.Hour)}, "--concurrency is 0"},
		"a worker that ends":          {-1, []fleet.Report{report(fleet.Server{ID: "b", Jobs: 4, Draining: true}, 0)}, "of the 1 that"},
		"old or loading":              {0, []fleet.Report{others, report(fleet.Server{ID: "d", Jobs: 4}, 0)}, ""},
		"of another graph":            {0, []fleet.Report{others}, "no server executes runs of quick: of the 1 that run on the database 1 execute runs, of other graphs"},
		"beside one that only serves": {-1, []fleet.Report{serves, others}, "no server executes runs of quick: of the 2 that run on the database 1 execute"},
		"each of some graphs":         {0, []fleet.Report{others, executes}, ""},
		"this one would":              {-1, []fleet.Report{others}, ""},
		"not readable":                {0, []fleet.Report{{Server: "c", At: time.Now()}}, ""},
	} {
		d := &doctor{}
		d.executed(&config.Config{Workers: config.Workers{Concurrency: c.concurrency}, Graphs: []config.Graph{{ID: "quick"}, {ID: "slow"}}}, c.reports)
		if c.want == "" {
			require.Empty(t, d.findings, name)
			continue
		}
		require.Len(t, d.findings, 1, name)
		require.Contains(t, d.findings[0].Text, c.want, name)
	}
}

// Who configured semantic search learns whether the database compares vectors itself, and what to do if not, before and after the first start.
func TestExaminePgvector(t *testing.T) {
	t.Parallel()
	p := newPatient(t)
	p.flags["database-url"] = postgrestest.Database(t)
	p.write("langgraph.json", `{"graphs": {"a": "./a.py:graph"}, "env": {"OPENAI_API_KEY": "x"}, "store": {"index": {"embed": "openai:small", "dims": 3}}}`)
	found := regexp.MustCompile(`(?m)^(ok|warning) store: .*pgvector.*$`)
	before := found.FindAllString(p.examine(), -1)
	require.Len(t, before, 1)
	store, err := postgres.Open(t.Context(), postgres.Options{URL: p.flags["database-url"], Connections: 2})
	require.NoError(t, err)
	require.NoError(t, store.Close())
	require.Equal(t, before, found.FindAllString(p.examine(), -1))

	const reads = "the database has no pgvector, and each semantic search reads all vectors below its namespace_prefix"
	for _, c := range []struct {
		have postgres.Vectors
		want Finding
	}{
		{postgres.Vectors{}, Finding{Check: "store", Verdict: Warning, Text: reads, Fix: "install pgvector where Postgres runs; then as superuser, in this database: CREATE EXTENSION vector, and restart the servers"}},
		{postgres.Vectors{Available: true}, Finding{Check: "store", Verdict: Warning, Text: reads, Fix: "as superuser, in this database: CREATE EXTENSION vector, and restart the servers"}},
		{postgres.Vectors{Available: true, Creatable: true}, Finding{Check: "store", Verdict: Fine, Text: "pgvector is installed; the next start creates its extension in the database"}},
		{postgres.Vectors{Version: "0.8.0", Available: true}, Finding{Check: "store", Verdict: Fine, Text: "pgvector 0.8.0 compares the vectors of semantic searches"}},
	} {
		d := &doctor{}
		d.vectors(&config.Config{StoreIndex: &config.StoreIndex{}}, c.have)
		require.Len(t, d.findings, 1)
		require.Equal(t, c.want, d.findings[0])
	}
}
