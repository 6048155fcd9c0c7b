package postgres

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"understudy/assistant"
	"understudy/id"
	"understudy/internal/encryption"
	"understudy/internal/fault"
	"understudy/internal/limits"
	"understudy/internal/logtest"
	"understudy/internal/metricstest"
	"understudy/internal/postgrestest"
	"understudy/run"
	"understudy/thread"
)

// with returns an address with other parts.
func with(t testing.TB, address string, change func(u *url.URL, q url.Values)) string {
	t.Helper()
	u, err := url.Parse(address)
	require.NoError(t, err)
	q := u.Query()
	change(u, q)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // which libpq takes as it is
	return u.String()
}

func insert(s *Store, n int) error {
	return s.write(context.Background(), func(tx *Tx) error { return tx.InsertThread(someThread(n)) })
}

func isUnavailable(t testing.TB, err error, text string) {
	t.Helper()
	require.ErrorContains(t, err, text)
	require.True(t, fault.Is(err, fault.Unavailable), "%v", err)
}

// TestServerGoesAndComesBack: while Postgres is away reads and writes say so at once; when it is
// back they go on, and what was answered is there.
func TestServerGoesAndComesBack(t *testing.T) {
	t.Parallel()
	pg := postgrestest.Start(t, "fsync=on", "synchronous_commit=on", "full_page_writes=on")
	address := pg.Address("postgres")
	s := open(t, Options{URL: address})
	for n := range 3 {
		require.NoError(t, insert(s, n))
		pg.Stop(t)
		isUnavailable(t, insert(s, 99), "the database")
		_, err := s.Threads().Threads(t.Context(), thread.Query{})
		isUnavailable(t, err, "the database cannot be reached")
		isUnavailable(t, s.Ping(t.Context()), "the database cannot be reached")
		_, err = Open(t.Context(), Options{URL: address})
		isUnavailable(t, err, "the database cannot be reached")
		pg.Restart(t)
	}
	list, err := s.Threads().Threads(t.Context(), thread.Query{})
	require.NoError(t, err)
	require.Len(t, list, 3)
}

// lines passes on what is logged, line by line.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// next returns the next line with one of the texts.
func (l lines) next(t testing.TB, texts ...string) string {
	t.Helper()
	for {
		select {
		case line := <-l:
			for _, text := range texts {
				if strings.Contains(line, text) {
					return line
				}
			}
		case <-time.After(time.Minute):
			t.Fatalf("the log has no %q", texts)
		}
	}
}

// An outage is one line that says what ends it, however often connecting fails, and its end is another. A connection that is lost and made again at
// once is no outage.
func TestOutageIsLogged(t *testing.T) {
	t.Parallel()
	pg := postgrestest.Start(t)
	log := make(lines, 1000)
	s := open(t, Options{URL: pg.Address("postgres"), Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan run.Signal, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(sig run.Signal) { heard <- sig }) }()
	<-heard
	execAll(t, connect(t, pg.Address("postgres")), killOthers)
	log.next(t, "notifications of other servers not received")
	require.Contains(t, log.next(t, "accept", "received again"), "received again")
	<-heard
	pg.Stop(t)
	require.Contains(t, log.next(t, "fix=\"start Postgres"), "fix=\"start Postgres, or look at the network; this server continues by itself\"")
	pg.Restart(t)
	require.Contains(t, log.next(t, "accepts connections again"), "after=")
	<-heard
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// Postgres that hangs, and a network that loses what is sent, end no connection: that nothing answers is reported all the same, with what to look at.
func TestHangIsLogged(t *testing.T) {
	t.Parallel()
	log := &logtest.Buffer{}
	out := outage{log: slog.New(slog.NewTextHandler(log, nil))}
	listener, err := pgconn.ParseConfig("postgres://h/d")
	require.NoError(t, err)
	listener.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, context.DeadlineExceeded }
	listener.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
	_, connecting := pgconn.ConnectConfig(t.Context(), listener)
	for range 2 { // the connection that is there, and then new ones
		out.failed(t.Context(), fmt.Errorf("timeout: %w", context.DeadlineExceeded))
		out.failed(t.Context(), connecting)
	}
	require.Equal(t, 1, strings.Count(log.String(), "level=ERROR"), log.String())
	require.Contains(t, log.String(), `msg="the database does not answer: requests wait for it,`)
	require.Contains(t, log.String(), `fix="see whether Postgres hangs`)
	out.over(t.Context())
	require.Contains(t, log.String(), "the database accepts connections again")
}

// A Postgres that hangs ends no connection and has not to be asked anything by a client: the log says so within three seconds, and that it answers again.
func TestSilenceIsLogged(t *testing.T) {
	t.Parallel()
	pg := postgrestest.Start(t)
	relay, through := postgrestest.NewRelay(t, pg.Address("postgres"))
	log := make(lines, 1000)
	s := open(t, Options{URL: through, Logger: slog.New(slog.NewTextHandler(log, nil))})
	ctx, cancel := context.WithCancel(t.Context())
	heard, ended := make(chan run.Signal, 100), make(chan error, 1)
	go func() { ended <- s.Listen(ctx, func(sig run.Signal) { heard <- sig }) }()
	<-heard
	require.Less(t, quiet+prompt, 3*time.Second)
	relay.Silence()
	require.Contains(t, log.next(t, "has not answered for a second"), "fix=")
	log.next(t, "level=ERROR msg=\"the database does not answer")
	relay.Forward()
	log.next(t, "accepts connections again")
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
}

// The limit of a user, or of a database, is not that of the server.
func TestMoreConnections(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	admin := connect(t, address)
	user := "limited" + strings.ToLower(rand.Text())
	execAll(t, admin, "CREATE ROLE "+user+" LOGIN CONNECTION LIMIT 0")
	t.Cleanup(func() { execAll(t, connect(t, address), "DROP ROLE "+user) })
	_, err := Open(t.Context(), Options{URL: with(t, address, func(u *url.URL, _ url.Values) { u.User = url.User(user) })})
	isUnavailable(t, err, `ALTER ROLE "`+user+`" CONNECTION LIMIT -1`)
	require.Contains(t, MoreConnections(&pgconn.PgError{Code: "53300", Message: `too many connections for database "app"`}), `ALTER DATABASE "app" CONNECTION LIMIT -1`)
	require.Contains(t, MoreConnections(&pgconn.PgError{Code: "53300", Message: "sorry, too many clients already"}), "max_connections")
}

// An outage that stays is logged once a minute, and at once when something else ends it: Postgres that shuts down is away a moment later.
func TestOutageThatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logtest.Buffer{}
		out := outage{log: slog.New(slog.NewTextHandler(log, nil))}
		failure := func(cause error) error {
			listener, err := pgconn.ParseConfig("postgres://h/d")
			require.NoError(t, err)
			listener.DialFunc = func(context.Context, string, string) (net.Conn, error) { return nil, cause }
			listener.LookupFunc = func(context.Context, string) ([]string, error) { return []string{"127.0.0.1"}, nil }
			_, err = pgconn.ConnectConfig(t.Context(), listener)
			require.Error(t, err)
			return err
		}
		starting, refused := failure(&pgconn.PgError{Code: "57P03", Message: "shutting down"}), failure(&net.OpError{Op: "dial", Err: errors.New("refused")})
		count := func() (starting, refused int) {
			return strings.Count(log.String(), "wait until Postgres has started"), strings.Count(log.String(), "start Postgres, or look at the network")
		}
		for _, err := range []error{io.ErrUnexpectedEOF, starting, starting, refused, refused, refused} {
			out.failed(t.Context(), err)
		}
		one, two := count()
		require.Equal(t, []int{1, 1}, []int{one, two}, log.String())
		time.Sleep(outageAgain)
		out.failed(t.Context(), refused)
		_, two = count()
		require.Equal(t, 2, two, log.String())
		out.over(t.Context())
		out.over(t.Context())
		require.Equal(t, 1, strings.Count(log.String(), "accepts connections again"), log.String())
	})
}

// TestNoRoom: a full disk is reported, the transaction has no effect, reads work, and writes work
// again when there is room.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s, admin := open(t, Options{URL: address}), connect(t, address)
	require.NoError(t, insert(s, 1))
	for code, text := range map[string]string{
		"53100": "the disk of the database is full", "53200": "out of memory", "58030": "disk I/O error", "54000": "", // too large: no other try helps
	} {
		execAll(t, admin, fmt.Sprintf(`CREATE OR REPLACE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '%s'; END $$`, code),
			"CREATE TRIGGER fails BEFORE INSERT ON thread_metadata EXECUTE FUNCTION fails()")
		err := s.write(t.Context(), func(tx *Tx) error {
			th := someThread(2)
			th.Metadata = []byte(`{"k":"v"}`)
			return tx.InsertThread(th)
		})
		require.Error(t, err)
		if text != "" {
			isUnavailable(t, err, text)
		} else {
			require.True(t, fault.Is(err, fault.TooLarge), err)
		}
		_, err = s.Thread(t.Context(), someThread(1).ID)
		require.NoError(t, err)
		_, err = s.Thread(t.Context(), someThread(2).ID)
		require.True(t, fault.Is(err, fault.NotFound))
		execAll(t, admin, "DROP TRIGGER fails ON thread_metadata")
	}
	require.NoError(t, insert(s, 2))
}

// TestReadOnly: on a standby reads go on and writes say why not; nothing of a migration is begun there.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	standby := address + "&default_transaction_read_only=on"
	_, err := Open(t.Context(), Options{URL: standby})
	isUnavailable(t, err, "the database is read-only")
	require.NoError(t, insert(open(t, Options{URL: address}), 1))
	s := open(t, Options{URL: standby})
	_, err = s.Thread(t.Context(), someThread(1).ID)
	require.NoError(t, err)
	isUnavailable(t, insert(s, 2), "the database is read-only")
	isUnavailable(t, s.Ping(t.Context()), "the database is read-only")
}

// TestPingOfADatabaseThatRefuses: a database that answers and saves nothing is not ready, whether a ping or a write notices first; it is ready when it saves again, without a
// write from a client. The log has the beginning with a fix, and the end, once each.
func TestPingOfADatabaseThatRefuses(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		refuse, accept []string
		text, fix      string
		written        bool // only a write can notice it
	}{
		"read-only": {
			refuse: []string{"ALTER DATABASE %s SET default_transaction_read_only = on"},
			accept: []string{"SET default_transaction_read_only = off", "ALTER DATABASE %s RESET default_transaction_read_only"},
			text:   "the database is read-only", fix: "name the primary",
		},
		"full": {
			refuse: []string{
				`CREATE FUNCTION room() RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$`,
				`CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM room(); RETURN NULL; END $$`,
				"CREATE TRIGGER fails BEFORE INSERT ON threads EXECUTE FUNCTION fails()",
			},
			accept: []string{"DROP TRIGGER fails ON threads", "DROP FUNCTION room", "CREATE FUNCTION room() RETURNS int LANGUAGE sql AS 'SELECT 1'"},
			text:   "the disk of the database is full", fix: "free space on the disk of Postgres", written: true,
		},
	} {
		for _, write := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, noticed by a write: %v", name, write), func(t *testing.T) {
				t.Parallel()
				address, log := postgrestest.Database(t), &logtest.Buffer{}
				s, admin := open(t, Options{URL: address, Logger: slog.New(slog.NewTextHandler(log, nil))}), connect(t, address)
				s.refusal.tryRoom, s.refusal.askAgain = "SELECT room()", 0
				run := func(texts []string) {
					for _, text := range texts {
						if strings.Contains(text, "%s") {
							text = fmt.Sprintf(text, pgx.Identifier{admin.Config().Database}.Sanitize())
						}
						execAll(t, admin, text)
					}
					s.pool.Reset() // settings of a database are those of new connections
				}
				require.NoError(t, s.Ping(t.Context()))
				run(c.refuse)
				if write {
					isUnavailable(t, insert(s, 1), c.text)
				}
				for range 3 {
					if err := s.Ping(t.Context()); c.written && !write {
						require.NoError(t, err)
					} else {
						isUnavailable(t, err, c.text)
					}
				}
				in, err := Inspect(t.Context(), Options{URL: address}, encryption.Configured{})
				require.NoError(t, err)
				require.Equal(t, !c.written, in.Refused != "", "what a write alone can notice is not simulated for others: %s", in.Refused)
				run(c.accept)
				require.NoError(t, s.Ping(t.Context()))
				require.NoError(t, insert(s, 1))
				times := 1
				if c.written && !write {
					times = 0
				}
				require.Equal(t, times, strings.Count(log.String(), "the database refuses writes"), log.String())
				require.Equal(t, times, strings.Count(log.String(), c.fix), log.String())
				require.Equal(t, times, strings.Count(log.String(), "the database accepts writes again"), log.String())
			})
		}
	}
}

// TestRefusalEndsWithoutPing: where nothing asks for readiness, writes that succeed end a refusal: of a read-only database the first, of a full disk, where a
// small write may find room, one long after the last that failed.
func TestRefusalEndsWithoutPing(t *testing.T) {
	t.Parallel()
	log, registry := &logtest.Buffer{}, prometheus.NewRegistry()
	s := open(t, Options{URL: postgrestest.Database(t), Logger: slog.New(slog.NewTextHandler(log, nil)), Registry: registry})
	require.NoError(t, s.Ping(t.Context()))
	full := &pgconn.PgError{Code: codeDiskFull}
	writable := func() float64 { return metricstest.Value(t, registry, "understudy_database_writable") }
	require.Equal(t, 1.0, writable())
	s.refused(errReadOnly)
	require.Equal(t, 0.0, writable())
	require.NoError(t, insert(s, 1))
	require.Equal(t, 1.0, writable())
	require.Equal(t, 1, strings.Count(log.String(), "accepts writes again"))
	s.refused(full)
	require.NoError(t, insert(s, 2))
	require.Equal(t, 1, strings.Count(log.String(), "accepts writes again"))
	s.refusal.last = s.refusal.last.Add(-2 * forgotten)
	require.NoError(t, insert(s, 3))
	require.Equal(t, 2, strings.Count(log.String(), "accepts writes again"))
	// What asks for room runs in Postgres, and is not repeated within the interval.
	s.refused(full)
	isUnavailable(t, s.Ping(t.Context()), "the disk of the database is full")
	s.refusal.tried = s.refusal.tried.Add(-2 * askAgain)
	require.NoError(t, s.Ping(t.Context()))
}

// TestRightsAreNamed: a role that may not create tables gets an error that says so; once they
// exist, rights to read and write them suffice.
func TestRightsAreNamed(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	admin := connect(t, address)
	role := strings.ReplaceAll(fmt.Sprintf("limited_%d", time.Now().UnixNano()), "-", "")
	execAll(t, admin, "CREATE ROLE "+role+" LOGIN", "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	limited := with(t, address, func(u *url.URL, _ url.Values) { u.User = url.User(role) })
	_, err := Open(t.Context(), Options{URL: limited})
	isUnavailable(t, err, "GRANT CREATE ON SCHEMA")
	_, err = Open(t.Context(), Options{URL: limited, Schema: "upstream_x"})
	isUnavailable(t, err, "lacks rights")
	open(t, Options{URL: address})
	s, err := Open(t.Context(), Options{URL: limited})
	isUnavailable(t, err, "lacks rights")
	require.Nil(t, s)
	execAll(t, admin, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "+role, "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO "+role)
	require.NoError(t, insert(open(t, Options{URL: limited}), 1))
}

// TestSchemas: the first schema of the search_path has it all, whichever way the address says it.
// Two of a database do not see each other.
func TestSchemas(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	path := with(t, address, func(_ *url.URL, q url.Values) { q.Set("search_path", "one") })
	_, err := Open(t.Context(), Options{URL: path})
	isUnavailable(t, err, "no schema of the search_path exists")
	admin := connect(t, address)
	execAll(t, admin, `CREATE SCHEMA one; CREATE SCHEMA "Two, really"`)
	quoted := with(t, address, func(_ *url.URL, q url.Values) { q.Set("options", `-csearch_path="Two,\ really"`) })
	stores := []*Store{
		open(t, Options{URL: path}), open(t, Options{URL: quoted}), open(t, Options{URL: address}), open(t, Options{URL: path, Schema: `Three"`}),
	}
	for i, s := range stores {
		require.NoError(t, insert(s, i))
	}
	for i, s := range stores {
		list, err := s.Threads().Threads(t.Context(), thread.Query{})
		require.NoError(t, err)
		require.Len(t, list, 1)
		require.Equal(t, someThread(i).ID, list[0].ID)
	}
	for i, schema := range []string{"one", "Two, really", "public", `Three"`} {
		var name string
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT thread_id FROM "+pgx.Identifier{schema, "threads"}.Sanitize()).Scan(&name))
		require.EqualValues(t, someThread(i).ID, name)
	}
}

// certificate creates a self-signed certificate for a local server and returns its CA file.
func certificate(t testing.TB, pg *postgrestest.Server) (authority string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	for name, block := range map[string]*pem.Block{"server.crt": {Type: "CERTIFICATE", Bytes: der}, "server.key": {Type: "PRIVATE KEY", Bytes: private}} {
		path := filepath.Join(pg.Data(), name)
		require.NoError(t, os.WriteFile(path, pem.EncodeToMemory(block), 0o600))
		pg.Own(t, path)
	}
	authority = filepath.Join(t.TempDir(), "ca.crt")
	require.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600))
	return authority
}

// TestPasswordsAndTLS: an error names what the server requires and the address lacks, without the
// password.
func TestPasswordsAndTLS(t *testing.T) {
	t.Parallel()
	pg := postgrestest.Start(t, "synchronous_commit=on") // it is stopped as by a crash
	address := pg.Address("postgres")
	execAll(t, connect(t, address), "CREATE ROLE me LOGIN SUPERUSER PASSWORD 'right'")
	authority := certificate(t, pg)
	hba := filepath.Join(pg.Data(), "pg_hba.conf")
	old, err := os.ReadFile(hba)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(hba, bytes.Join([][]byte{[]byte("hostssl all me all scram-sha-256\nhostnossl all me all reject\n"), old}, nil), 0o600))
	pg.Stop(t)
	pg.Restart(t, "ssl=on")
	me := func(password, mode string, more ...string) string {
		return with(t, address, func(u *url.URL, q url.Values) {
			u.User = url.UserPassword("me", password)
			q.Set("sslmode", mode)
			for i := 0; i < len(more); i += 2 {
				q.Set(more[i], more[i+1])
			}
		})
	}
	for _, tt := range []struct{ name, address, want string }{
		{"no TLS", me("right", "disable"), "without TLS (sslmode=require)"},
		{"wrong password", me("wrong", "require"), "rejects the user or password"},
		{"unknown authority", me("right", "verify-full"), "certificate"},
		{"missing authority", me("right", "verify-full", "sslrootcert", filepath.Join(t.TempDir(), "none")), "cannot be parsed"},
	} {
		_, err := Open(t.Context(), Options{URL: tt.address})
		require.ErrorContains(t, err, tt.want, tt.name)
		require.NotContains(t, err.Error(), "right", tt.name)
		require.NotContains(t, err.Error(), "wrong", tt.name)
	}
	for _, address := range []string{me("right", "require"), me("right", "verify-full", "sslrootcert", authority)} {
		s := open(t, Options{URL: address})
		var secure bool
		require.NoError(t, s.read(t.Context(), func(q *reader) error {
			return q.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()", func(r *row) error {
				secure = r.Bool(0)
				return nil
			})
		}))
		require.True(t, secure)
	}
	// A server without TLS is distinguished from one that is down.
	pg.Stop(t)
	pg.Restart(t, "ssl=off")
	_, err = Open(t.Context(), Options{URL: me("right", "require")})
	require.ErrorContains(t, err, "refused TLS")
}

// TestTooManyConnections: servers that need more connections than Postgres allows report it.
func TestTooManyConnections(t *testing.T) {
	t.Parallel()
	pg := postgrestest.Start(t, "max_connections=6", "superuser_reserved_connections=1", "max_wal_senders=0")
	address := pg.Address("postgres")
	execAll(t, connect(t, address), "CREATE ROLE me LOGIN; GRANT CREATE ON SCHEMA public TO me")
	address = with(t, address, func(u *url.URL, _ url.Values) { u.User = url.User("me") })
	s := open(t, Options{URL: address, Connections: 4})
	require.NoError(t, s.Ping(t.Context()))
	var refused error
	for refused == nil { // the pool of the first may have closed one meanwhile
		for {
			conn, err := pgx.Connect(t.Context(), address)
			if err != nil {
				break
			}
			t.Cleanup(func() { require.NoError(t, conn.Close(context.Background())) })
		}
		var another *Store
		if another, refused = Open(t.Context(), Options{URL: address}); refused == nil {
			require.NoError(t, another.Close())
		}
	}
	isUnavailable(t, refused, "accepts no more connections")
	require.NoError(t, insert(s, 1), "an open pool keeps working")
}

// TestHostVanishes: requests to a silent database fail after a while, whenever it fell silent; when
// it is back, everything works again.
func TestHostVanishes(t *testing.T) {
	t.Parallel()
	direct := postgrestest.Database(t)
	own := errors.New("own")
	there := func(s *Store, n int) error {
		_, err := s.Thread(context.Background(), someThread(n).ID)
		return err
	}
	for name, tt := range map[string]struct {
		call func(s *Store, silence func()) error
		want string // "": own
	}{
		"before a write": {func(s *Store, silence func()) error {
			silence()
			return insert(s, 2)
		}, "the database took too long"},
		"before a read": {func(s *Store, silence func()) error {
			silence()
			return there(s, 1)
		}, "the database took too long"},
		"in a snapshot": {func(s *Store, silence func()) error {
			return s.snapshot(context.Background(), func(q *reader) error {
				if err := q.query("SELECT 1", nil); err != nil {
					return err
				}
				silence()
				return q.query("SELECT 2", nil)
			})
		}, "the database took too long"},
		"before a commit": {func(s *Store, silence func()) error {
			return s.write(context.Background(), func(tx *Tx) error {
				defer silence()
				return errors.Join(tx.InsertThread(someThread(2)), tx.send())
			})
		}, "whether it happened is not known"},
		"before a rollback": {func(s *Store, silence func()) error {
			return s.write(context.Background(), func(tx *Tx) error {
				defer silence()
				return errors.Join(tx.InsertThread(someThread(2)), tx.send(), own)
			})
		}, ""},
		"before the end of a snapshot": {func(s *Store, silence func()) error {
			return s.snapshot(context.Background(), func(q *reader) error {
				defer silence()
				return errors.Join(q.query("SELECT 1", nil), own)
			})
		}, ""},
		"while nobody asked": {func(s *Store, silence func()) error {
			silence()
			time.Sleep(1100 * time.Millisecond)
			return there(s, 1)
		}, "failed to connect"}, // for the idle connection was found to be dead
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, address := postgrestest.NewRelay(t, direct)
			address = with(t, address, func(_ *url.URL, q url.Values) {
				q.Set("connect_timeout", "1")
				q.Set("pool_ping_timeout", "100ms")
			})
			s := open(t, Options{URL: address, Schema: strings.ReplaceAll(name, " ", "_")})
			patience := s.patience
			t.Cleanup(r.Forward) // before the store closes
			require.NoError(t, insert(s, 1))
			began := time.Now()
			err := tt.call(s, func() {
				r.Silence()
				s.patience = 300 * time.Millisecond
			})
			require.Less(t, time.Since(began), 20*time.Second)
			if tt.want == "" {
				require.ErrorIs(t, err, own)
			} else {
				isUnavailable(t, err, tt.want)
			}
			isUnavailable(t, insert(s, 3), "the database")
			r.Forward()
			s.patience = patience
			require.Eventually(t, func() bool { return there(s, 1) == nil }, 20*time.Second, 10*time.Millisecond) // a busy machine takes its time to connect
			require.NoError(t, insert(s, 3))
		})
	}
}

// TestPatience: what may take long is waited for.
func TestPatience(t *testing.T) {
	t.Parallel()
	for timeout, want := range map[string]time.Duration{
		"30000": 30 * time.Second, "200ms": 200 * time.Millisecond, "1.5s": 1500 * time.Millisecond, "5 min": 5 * time.Minute, " 1h ": time.Hour, "1d": 24 * time.Hour,
	} {
		require.Equal(t, want+grace, patienceFor(timeout), timeout)
	}
	for _, timeout := range []string{"0", "", "x", "5 years"} {
		require.Greater(t, patienceFor(timeout), 1000*24*time.Hour, timeout)
	}
}

// A value above a limit of Postgres is too large, and the limit is named: that of an index, of two kinds, or another.
func TestLimitsOfPostgres(t *testing.T) {
	t.Parallel()
	address := postgrestest.Database(t)
	s := open(t, Options{URL: address})
	random := make([]byte, 5000)
	_, _ = rand.Read(random) // never fails
	long := hex.EncodeToString(random)
	insert := func(graph string) error {
		return s.write(t.Context(), func(tx *Tx) error {
			return tx.InsertAssistant(&assistant.Assistant{ID: id.NewAssistant(), GraphID: graph, Version: 1, CreatedAt: time.Now(), UpdatedAt: time.Now()})
		})
	}
	require.NoError(t, insert(long[:limits.ItemNameBytes]))
	for _, size := range []int{6000, len(long)} { // one kind of message each
		err := insert(long[:size])
		require.True(t, fault.Is(err, fault.TooLarge), err)
		require.ErrorContains(t, err, "longer than an index of Postgres takes")
		require.NotContains(t, err.Error(), long[:100])
	}
	for text, want := range map[string]string{
		"string is too long for tsvector (2000000 bytes, max 1048575 bytes)": "a value is larger than Postgres takes (string is too long for tsvector",
		"index row size 2800 exceeds btree version 4 maximum 2704":           "longer than an index",
	} {
		require.ErrorContains(t, classify(&pgconn.PgError{Code: "54000", Message: text}), want)
	}
}
