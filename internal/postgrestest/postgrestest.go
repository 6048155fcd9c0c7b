// Package postgrestest provides tests with a real Postgres: a cluster of its own in a temporary folder, started once for a test binary, in which each
// test gets a database, which the next test uses again, emptied. Nothing outside is used or left behind.
//
//	func TestMain(m *testing.M) { os.Exit(postgrestest.Main(m)) }
//
//	func TestX(t *testing.T) { conn, err := pgx.Connect(t.Context(), postgrestest.Database(t)) … }
//
// Where Postgres is not installed, tests that need a database are skipped with a message; with CI=true they fail.
package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// started is the cluster of this process, started on first use.
var (
	once    sync.Once
	started *Server
	failed  error
	count   atomic.Int64
)

// Server is a cluster.
type Server struct {
	dir     string
	bin     string
	port    int
	options []string
	who     *owner // nil: this process's user
	cmd     *exec.Cmd

	mu   sync.Mutex
	free []string // databases that tests have left, empty
}

// Start starts a cluster for one test, which it may stop, restart and break. It ends with the test. options are settings such as
// "max_connections=5".
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	s, err := start(options...)
	if err != nil {
		refuse(t, err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error("stop postgres:", err)
		}
	})
	return s
}

// Stop ends the server as a crash does: it has no time to say goodbye or to finish anything.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	_ = s.cmd.Wait() // it was stopped
	s.cmd = nil
}

// Restart starts a server that was stopped, at the same address, with further options.
func (s *Server) Restart(t testing.TB, options ...string) {
	t.Helper()
	s.options = append(s.options, options...)
	if err := s.run(); err != nil {
		t.Fatal(err)
	}
}

// Data is the folder of the cluster's data.
func (s *Server) Data() string { return filepath.Join(s.dir, "data") }

// Own makes a file or folder belong to the user that the server runs as.
func (s *Server) Own(t testing.TB, path string) {
	t.Helper()
	if s.who == nil {
		return
	}
	if err := os.Chown(path, int(s.who.Uid), int(s.who.Gid)); err != nil {
		t.Fatal(err)
	}
}

// Database returns the address of an empty database, which belongs to the test until it ends.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := s.create(t)
	t.Cleanup(func() { s.clear(t, name) })
	return s.Address(name)
}

// create returns the name of an empty database.
func (s *Server) create(t testing.TB) string {
	t.Helper()
	name := s.take()
	if name == "" {
		name = fmt.Sprintf("test_%d", count.Add(1))
		if err := s.exec(t.Context(), "postgres", "CREATE DATABASE "+name+" STRATEGY FILE_COPY"); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// clear empties a database for the next test.
func (s *Server) clear(t testing.TB, name string) {
	t.Helper()
	if s.cmd == nil { // a test may leave a server that is stopped or broken: its folder is removed
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := s.exec(ctx, name, empty...); err == nil {
		s.mu.Lock()
		s.free = append(s.free, name)
		s.mu.Unlock()
		return
	}
	// A suite of hundreds of tests would otherwise need gigabytes.
	if err := s.exec(ctx, "postgres", "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
		t.Log("drop the database of the test:", err)
	}
}

// take returns a database that a test has left; "" if there is none.
func (s *Server) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.free) == 0 {
		return ""
	}
	name := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return name
}

// alone ends the other connections to a database.
const alone = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

// empty makes a database as it was when it was created. That takes a third of the time of dropping it and creating another, each of which copies or removes
// hundreds of files. It fails where a test has changed rights or settings of the database itself.
var empty = []string{
	alone,
	`DO $$ DECLARE name text; BEGIN
		IF EXISTS (SELECT FROM pg_database d LEFT JOIN pg_db_role_setting s ON s.setdatabase = d.oid WHERE datname = current_database() AND
			(datacl IS NOT NULL OR datconnlimit <> -1 OR s.setdatabase IS NOT NULL)) OR EXISTS (SELECT FROM pg_publication) THEN
			RAISE 'the database was changed';
		END IF;
		FOR name IN SELECT nspname FROM pg_namespace WHERE nspname <> 'information_schema' AND nspname !~ '^pg_' LOOP
			EXECUTE format('DROP SCHEMA %I CASCADE', name);
		END LOOP;
		CREATE SCHEMA public AUTHORIZATION pg_database_owner;
		GRANT USAGE ON SCHEMA public TO PUBLIC;
	END $$`,
}

// exec executes statements in a database, one after the other.
func (s *Server) exec(ctx context.Context, database string, statements ...string) error {
	return s.connected(ctx, database, func(ctx context.Context, conn *pgx.Conn) error {
		for _, text := range statements {
			if _, err := conn.Exec(ctx, text); err != nil {
				return err
			}
		}
		return nil
	})
}

// connected calls fn with a connection to a database.
func (s *Server) connected(ctx context.Context, database string, fn func(context.Context, *pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, s.Address(database))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return fn(ctx, conn)
}

// Main runs the tests of a package and stops the cluster, if one was started. It returns the exit code.
func Main(m *testing.M) int {
	code := m.Run()
	if started != nil {
		if err := started.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "stop postgres:", err)
			code = max(code, 1)
		}
	}
	return code
}

// Database is Server.Database of the cluster of this process.
func Database(t testing.TB) string {
	t.Helper()
	return cluster(t).Database(t)
}

// cluster returns the one of this process.
func cluster(t testing.TB) *Server {
	t.Helper()
	once.Do(func() { started, failed = start() })
	if failed != nil {
		refuse(t, failed)
	}
	return started
}

// refuse ends a test that has no server.
func refuse(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, errMissing) && os.Getenv("CI") == "" {
		t.Skipf("POSTGRES IS NOT INSTALLED, this test did not run: %v", err)
	}
	t.Fatal(err)
}

// Address is that of a database of the cluster.
func (s *Server) Address(database string) string {
	return fmt.Sprintf("postgres://postgres@127.0.0.1:%d/%s?sslmode=disable", s.port, database)
}

var errMissing = errors.New("there is no initdb on PATH or in /usr/lib/postgresql; on Debian: apt-get install postgresql")

// find returns the folder of the programs. Debian keeps them away from PATH; the newest version counts.
func find() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(all) == 0 {
		return "", errMissing
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // what is no number comes first
		return n
	}
	newest := slices.MaxFunc(all, func(a, b string) int { return version(a) - version(b) })
	return filepath.Dir(newest), nil
}

func start(options ...string) (_ *Server, err error) {
	s := &Server{options: options}
	if s.bin, err = find(); err != nil {
		return nil, err
	}
	if s.dir, err = os.MkdirTemp("", "postgrestest-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(s.dir))
		}
	}()
	// Postgres refuses to run as root: then it runs as another user that owns the folder.
	if os.Getuid() == 0 {
		if s.who, err = unprivileged(); err != nil {
			return nil, err
		}
		if err := os.Chown(s.dir, int(s.who.Uid), int(s.who.Gid)); err != nil {
			return nil, err
		}
	}
	if out, err := s.command("initdb", "-D", s.Data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb: %w: %s", err, out)
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	return s, s.run()
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.bin, program), args...)
	cmd.Dir, cmd.Env = s.dir, []string{"PATH=" + s.bin, "LC_ALL=C.UTF-8", "TZ=UTC"}
	cmd.SysProcAttr = s.who.attributes()
	return cmd
}

// run starts the server, and returns when it answers.
func (s *Server) run() error {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	args := []string{"-D", s.Data(), "-p", strconv.Itoa(s.port), "-h", "127.0.0.1", "-k", s.dir}
	for _, o := range append([]string{"fsync=off", "synchronous_commit=off", "full_page_writes=off", "max_connections=50", "shared_buffers=16MB", "wal_level=minimal", "max_wal_senders=0", "max_wal_size=256MB", "min_wal_size=32MB"}, s.options...) {
		args = append(args, "-c", o)
	}
	cmd := s.command("postgres", args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	if err := s.ready(); err != nil {
		text, _ := os.ReadFile(log.Name()) // without it the message is only shorter
		s.cmd = nil
		err = errors.Join(fmt.Errorf("postgres did not start: %w\n%s", err, text), cmd.Process.Kill())
		_ = cmd.Wait() // it was killed
		return err
	}
	return nil
}

// ready waits until the server answers.
func (s *Server) ready() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.Address("postgres"))
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the server at once: what is in it is not wanted any more.
func (s *Server) stop() error {
	var err error
	if s.cmd != nil {
		err = s.cmd.Process.Signal(syscall.SIGQUIT)
		_ = s.cmd.Wait() // it was stopped
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return 0, errors.Join(err, l.Close())
	}
	n, err := strconv.Atoi(strings.TrimSpace(port))
	return n, errors.Join(err, l.Close())
}
