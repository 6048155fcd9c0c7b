package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"understudy/internal/app/moving"
	"understudy/internal/config"
	"understudy/internal/shell"
)

func newBackup() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "backup [TARGET]",
		Short: "Copy the data folder, also while it is served",
		Long: `Copies the databases of the data folder into a new folder TARGET (default understudy-backup-TIME), also while a server works on it: each
database as it is at one moment, with everything that was acknowledged before. The copy is checked, and its checksums stand in
backup.json, which is written last: a folder without it is no backup. understudy restore puts it back.

Of a damaged database no backup is made, except with --damaged: then of what can be read, and the tables that lack rows are named.

A Postgres database is backed up with pg_dump or your provider's snapshots. Configuration, .env and code are not part of a backup.`,
		Example: `  understudy backup
  understudy backup /backups/monday --data /var/lib/understudy
  understudy backup /backups/$(date +%F) && rsync -a /backups/ other-machine:/backups/`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return misused(cmd, "takes one folder, but got %q", args)
			}
			return nil
		},
	}
	cmd.Flags().SortFlags = false
	load := dataFlags(cmd)
	damaged := cmd.Flags().Bool("damaged", false, "copy what can be read of a damaged database")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		to := "understudy-backup-" + time.Now().UTC().Format("20060102T150405Z")
		if len(args) == 1 {
			to = args[0]
		}
		ctx, stop := untilSignal(cmd.Context(), newLog(cfg, cmd.ErrOrStderr()))
		defer stop()
		began := time.Now()
		progress := newByteProgress(cmd.ErrOrStderr())
		m, err := moving.Backup(ctx, cfg, filepath.Clean(to), moving.BackupOptions{Version: version(), Damaged: *damaged, Report: progress.report})
		progress.end()
		if err != nil {
			return folderOnly(err, "pg_dump --format=custom --file understudy.dump URL")
		}
		out := cmd.OutOrStdout()
		describeBackup(out, m)
		fmt.Fprintf(out, "backed up to %s in %s; put it back with: understudy restore %s --data DIR\n", to, humanTime(time.Since(began)), shell.Quote(to))
		return nil
	}
	return cmd
}

// folderOnly adds to an error about data that is in no folder what to do instead.
func folderOnly(err error, instead string) error {
	if errors.Is(err, moving.ErrNotFolder) {
		return usageError{fmt.Errorf("%w: for Postgres use `%s`, or name a folder with --data; see docs/backup.md", err, instead)}
	}
	return err
}

func describeBackup(out io.Writer, m *moving.Manifest) {
	for _, f := range m.Files {
		fmt.Fprintf(out, "%-40s %12s  sha256 %s…\n", f.Path, config.ByteSize(f.Bytes).String(), f.SHA256[:16])
		if f.Lost != nil {
			fmt.Fprintf(out, "some rows of these tables of %s could not be read: %s\nafter restoring it, understudy rebuild makes the read models anew\n", f.Path, strings.Join(f.Lost, ", "))
		}
	}
}

// byteProgress shows how many bytes of a file are done: a bar on a terminal, else a line every few seconds.
type byteProgress struct {
	w    io.Writer
	file string
	bar  *progressbar.ProgressBar
	said time.Time
}

func newByteProgress(w io.Writer) *byteProgress { return &byteProgress{w: w, said: time.Now()} }

func (p *byteProgress) report(file string, done, total int64) {
	if !isTerminal(p.w) {
		if time.Since(p.said) >= sayEvery {
			p.said = time.Now()
			fmt.Fprintf(p.w, "%s: %d of %d MiB\n", file, done>>20, total>>20)
		}
		return
	}
	if p.bar == nil || p.file != file {
		p.end()
		p.file = file
		p.bar = progressbar.NewOptions64(total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(file), progressbar.OptionShowBytes(true),
			progressbar.OptionSetWidth(30), progressbar.OptionThrottle(100*time.Millisecond), progressbar.OptionClearOnFinish())
	}
	_ = p.bar.Set64(done) // a terminal that cannot be written to does not stop the work
}

func (p *byteProgress) end() {
	if p.bar != nil {
		_ = p.bar.Finish()
	}
}
