package advice

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"zombiezen.com/go/sqlite"

	"understudy/internal/config"
	"understudy/internal/filelimit"
	"understudy/internal/sockerr"
	storage "understudy/storage/sqlite"
)

// whole checks what every Problem has: one line, a next step that names the setting or what to change, and the cause.
func whole(t *testing.T, p *Problem, cause error) {
	t.Helper()
	require.NotNil(t, p)
	require.NotEmpty(t, p.Fix)
	require.NotContains(t, p.Error(), "\n")
	require.Equal(t, p.Text+"; "+p.Fix, p.Error())
	require.ErrorIs(t, p, cause)
	require.Same(t, p, From(fmt.Errorf("start: %w", errors.Join(p, errors.New("closed")))))
}

// The owner of a file or folder without the rights on it needs these, and no other owner.
func TestFolderOfItsOwnerWithoutRights(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		folder, file os.FileMode
		fix          string // what is run on the folder or the file
	}{
		"file":             {0o700, 0o400, "chmod u+rw FILE"},
		"file, none":       {0o700, 0, "chmod u+rw FILE"},
		"folder":           {0o500, 0o600, "chmod u+rwx FOLDER"},
		"folder, no entry": {0o600, 0o600, "chmod u+rwx FOLDER"},
		"neither":          {0o700, 0o600, "chown -R"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			file := filepath.Join(dir, "understudy.db")
			require.NoError(t, os.WriteFile(file, nil, 0o600))
			require.NoError(t, os.Chmod(file, c.file))
			require.NoError(t, os.Chmod(dir, c.folder))
			t.Cleanup(func() { require.NoError(t, os.Chmod(dir, 0o700)) })
			p := Folder("--data", dir, &fs.PathError{Op: "open", Path: file, Err: syscall.EACCES})
			require.Contains(t, p.Fix, strings.NewReplacer("FILE", file, "FOLDER", dir).Replace(c.fix))
		})
	}
}

func TestFolder(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	data := filepath.Join(dir, "a", "b")
	at := func(cause error) error {
		return fmt.Errorf("open database: %w", &fs.PathError{Op: "mkdir", Path: filepath.Dir(data), Err: cause})
	}
	for name, c := range map[string]struct {
		dir       string
		err       error
		text, fix string
	}{
		"a file":         {file, &fs.PathError{Op: "mkdir", Path: file, Err: syscall.ENOTDIR}, "--data: " + file + " is not a folder", "name another folder with --data"},
		"below a file":   {filepath.Join(file, "x", "y"), &fs.PathError{Op: "mkdir", Path: file, Err: syscall.ENOTDIR}, "--data: " + file + " is not a folder", "another folder"},
		"no right":       {data, at(syscall.EACCES), "may not write to " + dir + " (mkdir " + filepath.Dir(data) + ": permission denied)", fmt.Sprintf("make the folder for that user (install -d -m 700 -o %d %s)", os.Getuid(), data)},
		"no right to it": {dir, &fs.PathError{Op: "open", Path: filepath.Join(dir, "understudy.lock"), Err: syscall.EACCES}, "may not write to " + dir, fmt.Sprintf("chown -R %d %s", os.Getuid(), dir)},
		"not the owner":  {data, at(syscall.EPERM), "may not write to " + dir, "install -d"},
		"read-only":      {data, at(syscall.EROFS), dir + " is on a file system that is mounted read-only", "mount it for writing"},
		"read-only file": {data, sqlite.ResultReadOnly.ToError(), "mounted read-only", "mount it for writing"},
		"full":           {data, at(syscall.ENOSPC), "the disk of " + dir + " is full", "free disk space"},
		"full database":  {data, sqlite.ResultFull.ToError(), "the disk of " + dir + " is full", "free disk space"},
		"quota":          {data, at(syscall.EDQUOT), "the disk quota of user", "delete files"},
		"nothing there":  {data, at(syscall.ENOENT), "no folder can be made in " + dir, "another folder"},
		"locked":         {data, fmt.Errorf("open database: %w", &storage.InUseError{Dir: "x", Holder: "pid 7"}), "--data: the data folder x is in use by another server (pid 7)", "stop it first"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Folder("--data", c.dir, c.err)
			whole(t, p, c.err)
			require.Contains(t, p.Text, c.text)
			require.Contains(t, p.Fix, c.fix)
		})
	}
	require.Nil(t, Folder("--data", data, errors.New("damaged")))
	require.Nil(t, Folder("--data", ".understudy/x", &fs.PathError{Op: "mkdir", Path: "../backups", Err: syscall.EACCES}), "another folder's fault")
	require.NotNil(t, Folder("--data", "data/x", &fs.PathError{Op: "mkdir", Path: "data/x", Err: syscall.EACCES}))
	require.Nil(t, Folder("--data", data, nil))
	require.Nil(t, Folder("--data", data, &fs.PathError{Op: "open", Path: "/somewhere/else", Err: syscall.EACCES}), "another file's fault")
}

func TestDatabase(t *testing.T) {
	t.Parallel()
	const url = "postgres://me:s3cret@db.example:5432/app"
	connect := func(err error) error { return errors.Join(errors.New("dial"), err, err) }
	for name, c := range map[string]struct {
		err       error
		text, fix string
	}{
		"rights":            {&pgconn.PgError{Code: "42501", Message: "permission denied for schema public"}, "permission denied for schema public", `let its owner run GRANT USAGE, CREATE ON SCHEMA public TO "me", or correct the user in --database-url`},
		"rights on a table": {&pgconn.PgError{Code: "42501", Message: "permission denied for table threads"}, "permission denied for table threads", `GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO "me"; GRANT USAGE ON ALL SEQUENCES`},
		"owner":             {&pgconn.PgError{Code: "42501", Message: "must be owner of table threads"}, "must be owner of table threads", "name the user who owns the tables in --database-url"},
		"parameter":         {&pgconn.PgError{Code: "42704", Message: `unrecognized configuration parameter "poolsize"`}, `unrecognized configuration parameter "poolsize"`, "remove it from --database-url"},
		"password":          {&pgconn.PgError{Code: "28P01", Message: `password authentication failed for user "me"`}, "the password of user me is wrong, or there is no such user", "correct the password in --database-url"},
		"database":          {&pgconn.PgError{Code: "3D000"}, "this database does not exist", "createdb -h db.example -p 5432 -U me app"},
		"without TLS":       {&pgconn.PgError{Code: "28000", Message: `no pg_hba.conf entry for host "::1", user "me", database "app", no encryption`}, "it refuses user me: no pg_hba.conf entry", "sslmode=require"},
		"user":              {&pgconn.PgError{Code: "28000", Message: `role "me" does not exist`}, `role "me" does not exist`, "correct the user"},
		"starting":          {&pgconn.PgError{Code: "57P03", Message: "the database system is starting up"}, "starting up", "again"},
		"connections":       {&pgconn.PgError{Code: "53300"}, "no more connections", "max_connections"},
		"replica":           {&pgconn.PgError{Code: "25006"}, "it is read-only", "primary"},
		"anything else":     {&pgconn.PgError{Code: "XX000", Message: "first\n\tsecond\n\tsecond"}, "app on db.example:5432: first; second", "--database-url"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := Database("--database-url", url, connect(c.err))
			whole(t, p, c.err)
			require.True(t, strings.HasPrefix(p.Text, "database app on db.example:5432: "), p.Text)
			require.Contains(t, p.Text, c.text)
			require.Contains(t, p.Fix, c.fix)
			require.NotContains(t, p.Error(), "s3cret")
		})
	}
	require.Nil(t, Database("--database-url", url, errors.New("the database was written by a newer version")))
	require.Nil(t, Database("--database-url", url, nil))
}

func TestPort(t *testing.T) {
	t.Parallel()
	cfg := config.Default(config.Dev)
	listen := func(err error) error { return fmt.Errorf("start: %w", &net.OpError{Op: "listen", Err: err}) }
	p := Port(cfg, listen(sockerr.InUse))
	whole(t, p, sockerr.InUse)
	require.Contains(t, p.Error(), "port 2024 on 127.0.0.1 is taken")
	whole(t, Port(cfg, listen(sockerr.NotAvailable)), sockerr.NotAvailable)
	unknown := &net.DNSError{Name: "here.example", IsNotFound: true}
	whole(t, Port(cfg, listen(unknown)), unknown)
	require.Contains(t, Port(cfg, listen(unknown)).Error(), "here.example; write an address of this machine, such as 127.0.0.1 or 0.0.0.0, in --host")
	cfg.Server.Port = 80
	whole(t, Port(cfg, listen(sockerr.Denied)), sockerr.Denied)
	require.Nil(t, Port(cfg, &fs.PathError{Op: "open", Path: "/data", Err: syscall.EACCES}), "a file's fault is not the port's")
	require.Nil(t, Port(cfg, nil))
}

func TestFiles(t *testing.T) {
	t.Parallel()
	for _, cause := range []error{syscall.EMFILE, syscall.ENFILE} {
		for _, err := range []error{
			&fs.PathError{Op: "open", Path: "/data/understudy.lock", Err: cause}, &net.OpError{Op: "listen", Err: os.NewSyscallError("socket", cause)},
			fmt.Errorf("open database: %w", os.NewSyscallError("epoll_create", cause)),
		} {
			p := Files(err)
			whole(t, p, err)
			require.Contains(t, p.Text, "too many open files")
			require.Contains(t, p.Fix, "raise")
		}
	}
	require.Nil(t, Files(syscall.EACCES))
	require.Nil(t, Files(nil))

	require.Nil(t, tooFewFiles(0, 100), "no limit")
	require.Nil(t, tooFewFiles(100, 100))
	require.EqualError(t, tooFewFiles(99, 100), "the limit on open files is too low: it is 99, and the server needs 100 and one more for each client; "+filelimit.Fix)
}

// Who wrote no sslmode learns where it comes from.
func TestWhatAnAddressRequiresOfTLS(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"postgres://db.example/app":                                     "sslmode=require requires, the default for addresses of other machines",
		"postgres://db.example/app?sslmode=verify-full&x=y":             "sslmode=verify-full requires",
		"host=db.example sslmode=require user=me":                       "sslmode=require requires",
		"postgres://db.example/app?connect_timeout=5&sslmode=verify-ca": "sslmode=verify-ca requires",
	} {
		require.Equal(t, want, sslmode(url), url)
	}
}
