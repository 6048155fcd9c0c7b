package doctor

import (
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"understudy/internal/app/advice"
	"understudy/internal/app/backend"
	"understudy/internal/config"
	"understudy/internal/postgrestest"
	"understudy/storage/sqlite"
)

// What keeps a server from starting is said in one line with a next step, and doctor says the same.
func TestServersSayWhatDoctorSays(t *testing.T) {
	t.Parallel()
	agree := func(t *testing.T, p *patient, text, fix string) {
		t.Helper()
		cfg, _, err := config.Load(config.Source{Mode: config.Serve, File: filepath.Join(p.dir, "langgraph.json"), Flags: p.flags, Lookup: func(string) (string, bool) { return "", false }})
		require.NoError(t, err)
		rows, err := backend.Open(t.Context(), cfg, backend.Options{Log: slog.New(slog.DiscardHandler)})
		if err == nil {
			_ = rows.Close()
		}
		require.Error(t, err)
		problem := advice.From(err)
		require.NotNil(t, problem, "%v", err)
		require.Contains(t, problem.Text, text)
		require.Contains(t, problem.Fix, fix)
		require.NotContains(t, err.Error(), "\n")
		require.NotContains(t, err.Error(), "s3cret")
		require.Contains(t, p.examine(), problem.Text+" → "+problem.Fix+" []")
	}

	t.Run("a file", func(t *testing.T) {
		t.Parallel()
		p := newPatient(t)
		p.flags["data"] = p.write("file", "")
		agree(t, p, "file is not a folder", "--data")
		p.flags["data"] = filepath.Join(p.write("file", ""), "below", "it")
		agree(t, p, "file is not a folder", "--data")
	})
	t.Run("no place", func(t *testing.T) {
		t.Parallel()
		p := newPatient(t)
		p.flags["data"] = "/proc/data"
		cfg := &config.Config{Storage: config.Storage{Data: p.flags["data"]}}
		_, err := backend.Open(t.Context(), cfg, backend.Options{Log: slog.New(slog.DiscardHandler)})
		require.NotNil(t, advice.From(err), "%v", err)
	})
	t.Run("no right", func(t *testing.T) {
		t.Parallel()
		if os.Getuid() == 0 {
			t.Skip("root may write everywhere")
		}
		p := newPatient(t)
		closed := filepath.Join(p.dir, "closed")
		require.NoError(t, os.Mkdir(closed, 0o500))
		p.flags["data"] = filepath.Join(closed, "data")
		require.Contains(t, p.examine(), "install -d")
	})
	t.Run("locked", func(t *testing.T) {
		t.Parallel()
		p := newPatient(t)
		s, err := sqlite.Open(t.Context(), sqlite.Options{Dir: p.flags["data"]})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		_, err = backend.Open(t.Context(), &config.Config{Storage: config.Storage{Data: p.flags["data"]}}, backend.Options{Log: slog.New(slog.DiscardHandler)})
		require.ErrorContains(t, err, "in use by another server (pid "+strconv.Itoa(os.Getpid()))
		require.ErrorContains(t, err, "; stop it first, or give this one a folder of its own with --data")
	})
	t.Run("Postgres", func(t *testing.T) {
		t.Parallel()
		server := postgrestest.Start(t)
		address := server.Database(t)
		hba := "host all postgres 127.0.0.1/32 trust\nhost all locked 127.0.0.1/32 scram-sha-256\nhostssl all closed 127.0.0.1/32 trust\n"
		require.NoError(t, os.WriteFile(filepath.Join(server.Data(), "pg_hba.conf"), []byte(hba), 0o600))
		server.Stop(t)
		server.Restart(t)
		mute, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		t.Cleanup(func() { _ = mute.Close() })
		go func() {
			for {
				c, err := mute.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
			}
		}()
		as := func(user, database string) string {
			base, _, _ := strings.Cut(strings.Replace(address, "postgres@", user+":s3cret@", 1), "?")
			return base[:strings.LastIndexByte(base, '/')+1] + database
		}
		// Without sslmode the driver tries with TLS and without: the fault is reported once.
		for name, c := range map[string]struct{ address, text, fix string }{
			"password":        {as("locked", "postgres"), "the password of user locked is wrong", "correct the password in --database-url"},
			"database":        {as("postgres", "missing"), "database missing on 127.0.0.1:", "createdb -h 127.0.0.1"},
			"TLS required":    {as("closed", "postgres"), "it refuses user closed: no pg_hba.conf entry", "sslmode=require"},
			"TLS not offered": {as("postgres", "postgres") + "?sslmode=verify-full", "it does not offer TLS, which sslmode=verify-full requires", "sslmode=disable"},
			"nobody":          {"postgres://u:s3cret@127.0.0.1:1/x", "nothing listens there", "start Postgres there, or correct the address in --database-url"},
			"no socket":       {"postgres://u:s3cret@/x?host=/no/such/folder", "nothing listens there", "start Postgres there"},
			"no host":         {"postgres://u:s3cret@no-such-host.invalid/x", "no-such-host.invalid", "in --database-url"},
			"not Postgres":    {"postgres://u:s3cret@" + mute.Addr().String() + "/x", "it closes the connection", "see that it is Postgres"},
		} {
			t.Run(name, func(t *testing.T) {
				p := newPatient(t)
				p.flags["database-url"] = c.address
				agree(t, p, c.text, c.fix)
			})
		}
	})
}
