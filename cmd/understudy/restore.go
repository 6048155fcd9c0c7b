package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"understudy/internal/app/moving"
)

func newRestore() *cobra.Command {
	replace := false
	cmd := &cobra.Command{
		Use:   "restore SOURCE",
		Short: "Put a backup back",
		Long: `Puts the backup SOURCE into the data folder, on this machine or another. Its checksums and databases are verified first; only when all are
whole is anything changed. Stop the server on the data folder before.

A data folder that has a database is refused; with --replace the old one is kept next to the new one, as understudy.db.before-TIME. At its
next start the server resumes the runs that were pending or running when the backup was made, from their checkpoints of then.`,
		Example: `  understudy restore understudy-backup-20260102T030405Z --data /var/lib/understudy
  understudy restore /backups/monday --replace`,
		Args: needArgs(1, 1, "the folder of a backup"),
	}
	cmd.Flags().SortFlags = false
	cmd.Flags().BoolVar(&replace, "replace", false, "move a database that is there aside")
	load := dataFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		ctx, stop := untilSignal(cmd.Context(), newLog(cfg, cmd.ErrOrStderr()))
		defer stop()
		progress := newByteProgress(cmd.ErrOrStderr())
		aside := ""
		if replace {
			aside = ".before-" + time.Now().UTC().Format("20060102T150405Z")
		}
		m, err := moving.Restore(ctx, cfg, args[0], aside, progress.report)
		progress.end()
		if errors.Is(err, moving.ErrOccupied) {
			return fmt.Errorf("%w: name another folder with --data, or keep the old database aside with --replace", err)
		}
		if err != nil {
			return folderOnly(err, "pg_restore --clean --if-exists --dbname URL understudy.dump")
		}
		out := cmd.OutOrStdout()
		describeBackup(out, m)
		fmt.Fprintf(out, "verified and restored into %s: the data of %s\n", cfg.Storage.Data, m.Created.Local().Format("2006-01-02 15:04:05"))
		fmt.Fprintln(out, "note: API keys are those of then: keys that were revoked since are valid again (understudy keys list), keys that were created since are gone")
		if replace {
			fmt.Fprintf(out, "a database that was there is kept with the ending %s\n", aside)
		}
		return nil
	}
	return cmd
}
