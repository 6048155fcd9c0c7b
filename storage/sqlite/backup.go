package sqlite

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"zombiezen.com/go/sqlite"

	"understudy/internal/owner"
)

// A backup is a folder: the databases of a data folder, that of the server and those of a proxy's upstreams, under their paths, and a manifest
// with their checksums, which is written last.

// manifestName is the manifest within a backup.
const manifestName = "backup.json"

// Manifest says what a backup holds.
type Manifest struct {
	Created time.Time      `json:"created_at"`
	Version string         `json:"version"` // of the program
	Schema  int            `json:"schema"`  // of the newest database
	Files   []ManifestFile `json:"files"`
}

// ManifestFile is one database of a backup.
type ManifestFile struct {
	Path   string `json:"path"` // within the data folder, with slashes
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// Lost are the tables of a damaged database of which something could not be read; nil in the backup of a whole one.
	Lost []string `json:"lost,omitempty"`
}

// Report reports how far an operation is, in bytes of one database. It is called often. nil: no reports.
type Report func(file string, done, total int64)

// backupStep is how many pages are copied at once.
const backupStep = 256

// BackupOptions configure Backup.
type BackupOptions struct {
	Version string // of the program
	// Damaged copies what can be read of damaged databases, row by row. Otherwise they are an error.
	Damaged bool
	Report  Report
}

// Backup copies the databases of a data folder to a new folder, also while servers write to it: each as it is at one moment. The copies are checked.
// The log of SQLite grows while a copy is made, by what is written meanwhile.
func Backup(ctx context.Context, dir, to string, o BackupOptions) (*Manifest, error) {
	files, err := databases(dir)
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: %s has no database", ErrNoFolder, dir)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return nil, errors.Join(fmt.Errorf("%s is there already: name a folder that is not", to), notExisting(err))
	}
	var need int64
	for _, name := range files {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil { // else copying it says why
			need += info.Size()
		}
	}
	if err := roomIn(filepath.Dir(to), need); err != nil {
		return nil, err
	}
	partial := to + ".partial"
	if err := errors.Join(os.RemoveAll(partial), os.MkdirAll(partial, 0o700)); err != nil {
		return nil, err
	}
	m := &Manifest{Created: time.Now().UTC().Truncate(time.Second), Version: o.Version}
	for _, name := range files {
		f, schema, err := backupFile(ctx, filepath.Join(dir, name), filepath.Join(partial, name), o.Damaged, func(done, total int64) {
			if o.Report != nil {
				o.Report(filepath.ToSlash(name), done, total)
			}
		})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("back up %s: %w", filepath.Join(dir, name), err), os.RemoveAll(partial))
		}
		f.Path = filepath.ToSlash(name)
		m.Files, m.Schema = append(m.Files, f), max(m.Schema, schema)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err == nil {
		err = writeSynced(filepath.Join(partial, manifestName), append(text, '\n'))
	}
	if err == nil {
		err = os.Rename(partial, to)
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(partial))
	}
	return m, syncDir(filepath.Dir(to))
}

func notExisting(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// databases returns the paths of the databases within a data folder.
func databases(dir string) (files []string, err error) {
	if _, err := os.ReadDir(dir); err != nil && !errors.Is(err, fs.ErrNotExist) { // which Glob does not report
		return nil, err
	}
	for _, pattern := range []string{fileName, filepath.Join("upstreams", "*", fileName)} {
		found, err := filepath.Glob(filepath.Join(escapeGlob(dir), pattern))
		if err != nil {
			return nil, err
		}
		for _, f := range found {
			rel, err := filepath.Rel(dir, f)
			if err != nil {
				return nil, err
			}
			files = append(files, rel)
		}
	}
	return files, nil
}

func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// backupFile copies one database, checks the copy and returns its checksum.
func backupFile(ctx context.Context, from, to string, damaged bool, report func(done, total int64)) (f ManifestFile, schema int, err error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return f, 0, err
	}
	if damaged {
		f.Lost, err = salvage(ctx, from, to, report)
	} else {
		err = copyDatabase(ctx, from, to, report)
	}
	if err != nil {
		return f, 0, err
	}
	if schema, err = checkDatabase(ctx, to); err != nil {
		return f, 0, err
	}
	if err := os.Chmod(to, 0o600); err != nil {
		return f, 0, err
	}
	f.Bytes, f.SHA256, err = sumOf(ctx, to, io.Discard)
	return f, schema, err
}

// copyDatabase copies a database as it is at one moment. It holds one read transaction: otherwise each write of another process would make the copy
// begin anew.
func copyDatabase(ctx context.Context, from, to string, report func(done, total int64)) (err error) {
	if err := accessible(from); err != nil {
		return err
	}
	src, err := sqlite.OpenConn(from, sqlite.OpenReadOnly)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	src.SetInterrupt(ctx.Done())
	src.SetBusyTimeout(time.Minute)
	var pageSize int64
	if _, err := one(src, "PRAGMA page_size", func(s *sqlite.Stmt) error { pageSize = s.ColumnInt64(0); return nil }); err != nil {
		return err
	}
	if err := query(src, "BEGIN", func(*sqlite.Stmt) error { return nil }); err != nil {
		return err
	}
	if _, err := one(src, "SELECT count(*) FROM sqlite_schema", func(*sqlite.Stmt) error { return nil }); err != nil {
		return err
	}
	dst, err := sqlite.OpenConn(to, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	b, err := sqlite.NewBackup(dst, "main", src, "main")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	for {
		more, err := b.Step(backupStep)
		if err != nil {
			return err
		}
		total := int64(b.PageCount()) * pageSize
		report(total-int64(b.Remaining())*pageSize, total)
		if !more {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// checkDatabase checks a database that no other process has open, and returns its schema. It leaves one file, on disk.
func checkDatabase(ctx context.Context, path string) (schema int, err error) {
	conn, err := sqlite.OpenConn(path, sqlite.OpenReadWrite)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	conn.SetInterrupt(ctx.Done())
	var damage []string
	err = query(conn, "PRAGMA quick_check(10)", func(s *sqlite.Stmt) error {
		if text := s.ColumnText(0); text != "ok" {
			damage = append(damage, text)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if len(damage) > 0 {
		return 0, fmt.Errorf("the database is damaged: %s", strings.Join(damage, "; "))
	}
	_, err = one(conn, "SELECT max(number) FROM schema_migrations", func(s *sqlite.Stmt) error {
		schema = s.ColumnInt(0)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("it is no database of understudy: %w", err)
	}
	if schema == 0 {
		return 0, errors.New("its table schema_migrations is empty, so that no server can open it")
	}
	if known := len(migrations()); schema > known {
		return 0, fmt.Errorf("it was written by a newer version of this program (schema %d; this version knows %d): use that version", schema, known)
	}
	return schema, nil
}

// ErrOccupied is returned by Restore for a data folder that has a database.
var ErrOccupied = errors.New("the folder has a database already")

// RestoreOptions configure Restore.
type RestoreOptions struct {
	// Replace moves databases that are there aside, to names with this suffix. "": they are an error.
	Replace string
	Report  Report
}

// Restore verifies a backup and puts its databases into a data folder, of which no server may be running. It changes nothing before all of the backup
// was copied and verified.
func Restore(ctx context.Context, from, dir string, o RestoreOptions) (m *Manifest, err error) {
	if m, err = readManifest(from); err != nil {
		return nil, err
	}
	var need int64
	for _, f := range m.Files {
		need += f.Bytes
	}
	if err := roomIn(dir, need); err != nil {
		return nil, err
	}
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	var copies []string
	defer func() {
		for _, c := range copies {
			err = errors.Join(err, notExisting(os.Remove(c))) // moved ones are not there any more
		}
	}()
	for _, f := range m.Files {
		to := filepath.Join(dir, filepath.FromSlash(f.Path))
		if err := makeDir(filepath.Dir(to)); err != nil {
			return nil, err
		}
		lock, err := lockDir(filepath.Dir(to))
		if err != nil {
			return nil, err
		}
		defer lock.Close()
		if _, err := os.Lstat(to); err == nil && o.Replace == "" {
			return nil, fmt.Errorf("%s: %w", filepath.Dir(to), ErrOccupied)
		}
		copies = append(copies, to+".restoring")
		if err := restoreFile(ctx, filepath.Join(from, filepath.FromSlash(f.Path)), to+".restoring", f, o.Report); err != nil {
			return nil, fmt.Errorf("restore %s: %w", f.Path, err)
		}
	}
	for _, f := range m.Files {
		to := filepath.Join(dir, filepath.FromSlash(f.Path))
		// The log of the old database must never be applied to the new one.
		for _, part := range []string{"-wal", "-shm", ""} {
			move := func() error { return os.Rename(to+part, to+o.Replace+part) }
			if o.Replace == "" {
				move = func() error { return os.Remove(to + part) } // a log that was left behind
			}
			if err := notExisting(move()); err != nil {
				return nil, err
			}
		}
		if err := errors.Join(owner.Inherit(to+".restoring"), os.Rename(to+".restoring", to)); err != nil {
			return nil, err
		}
		if err := syncDir(filepath.Dir(to)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// readManifest reads the manifest of a backup, whose paths must stay within it.
func readManifest(from string) (*Manifest, error) {
	text, err := os.ReadFile(filepath.Join(from, manifestName))
	if info, statErr := os.Stat(from); statErr == nil && !info.IsDir() {
		return nil, fmt.Errorf("%s is a file; name the folder of a backup, which has a %s", from, manifestName)
	}
	if _, statErr := os.Stat(from); errors.Is(statErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s does not exist; name the folder of a backup, which has a %s", from, manifestName)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%[1]s is no backup: it has no %[2]s, which is written last; name a folder that has one, or make another backup", from, manifestName)
	}
	if err != nil {
		return nil, err
	}
	m := &Manifest{}
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s of %s: %w", manifestName, from, err)
	}
	for _, f := range m.Files {
		if path := filepath.FromSlash(f.Path); !filepath.IsLocal(path) || filepath.Base(path) != fileName {
			return nil, fmt.Errorf("%s of %s names %q, which is no database of a data folder", manifestName, from, f.Path)
		}
	}
	if len(m.Files) == 0 {
		return nil, fmt.Errorf("%s of %s names no database", manifestName, from)
	}
	return m, nil
}

// restoreFile copies one file of a backup and verifies its checksum and the database in it.
func restoreFile(ctx context.Context, from, to string, want ManifestFile, report Report) error {
	if err := notExisting(os.Remove(to)); err != nil {
		return err
	}
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	n, sum, err := sumOf(ctx, from, &reporting{f, func(done int64) {
		if report != nil {
			report(want.Path, done, want.Bytes)
		}
	}, 0})
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if n != want.Bytes || sum != want.SHA256 {
		return fmt.Errorf("the file is not the one that was backed up: %d bytes with SHA-256 %s, not %d with %s; this copy is damaged: use another one", n, sum, want.Bytes, want.SHA256)
	}
	_, err = checkDatabase(ctx, to)
	return err
}

// reporting is a writer that reports how much was written.
type reporting struct {
	io.Writer
	report func(int64)
	done   int64
}

func (r *reporting) Write(b []byte) (int, error) {
	n, err := r.Writer.Write(b)
	r.done += int64(n)
	r.report(r.done)
	return n, err
}

// sumOf copies a file and returns its length and checksum.
func sumOf(ctx context.Context, path string, to io.Writer) (n int64, sum string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	buf := make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return n, "", context.Cause(ctx)
		}
		k, err := f.Read(buf)
		if k > 0 {
			h.Write(buf[:k])
			if _, err := to.Write(buf[:k]); err != nil {
				return n, "", err
			}
			n += int64(k)
		}
		if errors.Is(err, io.EOF) {
			return n, hex.EncodeToString(h.Sum(nil)), nil
		}
		if err != nil {
			return n, "", err
		}
	}
}

func writeSynced(path string, text []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Sync(), f.Close())
}

// syncDir makes names in a folder durable, which Windows does by itself.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
