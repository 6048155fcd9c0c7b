package main

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"understudy/eventstore/readmodel"
	"understudy/id"
	"understudy/internal/app/moving"
	runusage "understudy/run/usage"
)

// maxPrinted is how many differing threads are printed.
const maxPrinted = 20

// errDiffer ends rebuild --check when something differs.
var errDiffer = errors.New("stored read models differ from what they are made of: understudy rebuild makes them anew")

// readModels are the names of all.
func readModels() []string { return append(readmodel.Models(), runusage.Name) }

func newRebuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild [NAME...]",
		Short: "Make the read models anew, and prove them right",
		Long: `Read models are tables made of the logs of threads and of runs, for lists that would otherwise search all of these:
  branches   of which thread a thread is a fork
  heads      where each thread is
  messages   which checkpoint saved a message
  timeline   what happened on all threads
  usage      what runs used by day

Servers keep them up to date by themselves. This command makes them anew, thread by thread and day by day, compares the result with
what is stored, names threads and days that differ, replaces their rows, and compares again until both are equal. With --check it only compares; when something
differs, the exit status is 1. What deleted runs used cannot be made anew: it stays as it is.

The data folder must have no server; on Postgres servers may run. It may be interrupted, and run again.`,
		Example: `  understudy rebuild --check
  understudy rebuild
  understudy rebuild timeline heads --database-url postgres://me:secret@localhost/understudy`,
		ValidArgs: readModels(),
	}
	cmd.Flags().SortFlags = false
	load := dataFlags(cmd)
	check := cmd.Flags().Bool("check", false, "only compare")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			if !slices.Contains(readModels(), name) {
				return misused(cmd, "does not know %q; the read models are %s", name, strings.Join(readModels(), ", "))
			}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, _, err := load()
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		log := newLog(cfg, cmd.ErrOrStderr())
		ctx, stop := untilSignal(cmd.Context(), log)
		defer stop()
		differing, said := 0, time.Now()
		var logs *readmodel.Rebuilding
		if models := slices.DeleteFunc(slices.Clone(args), func(name string) bool { return name == runusage.Name }); len(models) > 0 || len(args) == 0 {
			logs = &readmodel.Rebuilding{
				Models: models, Check: *check,
				Differs: func(t id.Thread, extra, missing []readmodel.Row) {
					if differing++; differing <= maxPrinted {
						printDifference(out, t, extra, missing)
					}
				},
				Progress: func(n int) {
					if time.Since(said) > quietFor {
						fmt.Fprintf(cmd.ErrOrStderr(), "%d threads compared\n", n)
						said = time.Now()
					}
				},
			}
		}
		var sums *runusage.Rebuilding
		if len(args) == 0 || slices.Contains(args, runusage.Name) {
			sums = &runusage.Rebuilding{Now: time.Now, Check: *check, Differs: func(day int64, runs int, sums []runusage.Difference) { printUsageDifference(out, day, runs, sums) }}
		}
		ofLogs, ofUsage, err := moving.Rebuild(ctx, cfg, logs, sums, log)
		different := 0
		if ofLogs != nil {
			printRebuilt(out, ofLogs, differing, *check)
			different += ofLogs.Different
		}
		if ofUsage != nil {
			printRebuiltUsage(out, ofUsage, *check)
			different += ofUsage.Different
		}
		if err == nil && *check && different > 0 {
			err = errDiffer
		}
		return err
	}
	return cmd
}

// printDifference prints how many rows of a thread differ, and the first of them.
func printDifference(w io.Writer, t id.Thread, extra, missing []readmodel.Row) {
	fmt.Fprintf(w, "thread %s: %d rows too many, %d missing\n", t, len(extra), len(missing))
	for _, list := range []struct {
		sign string
		rows []readmodel.Row
	}{{"-", extra}, {"+", missing}} {
		for _, r := range list.rows[:min(3, len(list.rows))] {
			fmt.Fprintf(w, "  %s %s %q seq %d run %q checkpoint %q ref %d\n", list.sign, r.Model, r.Name, r.Seq, r.Run, r.Checkpoint, r.Ref)
		}
	}
}

// printRebuilt prints the result of a rebuild in which so many threads differed.
func printRebuilt(w io.Writer, result *readmodel.Rebuilt, differing int, check bool) {
	if differing > maxPrinted {
		fmt.Fprintf(w, "… and %d more threads\n", differing-maxPrinted)
	}
	for _, m := range readmodel.Models() {
		if n, chosen := result.Rows[m]; chosen {
			fmt.Fprintf(w, "%-10s %d rows\n", m, n)
		}
	}
	end := ""
	if !check && result.Different > 0 {
		end = " and are equal to their logs now"
	}
	fmt.Fprintf(w, "%d threads compared, %d differed%s\n", result.Threads, result.Different, end)
	if result.Behind > 0 {
		fmt.Fprintf(w, "%d threads have new events that a server has yet to add\n", result.Behind)
	}
}

// printUsageDifference prints how much of a day differs, and the first of it.
func printUsageDifference(w io.Writer, day int64, runs int, sums []runusage.Difference) {
	fmt.Fprintf(w, "day %s: usage of %d runs and %d sums differ\n", runusage.Date(day).Format(time.DateOnly), runs, len(sums))
	for _, d := range sums[:min(3, len(sums))] {
		whose := "everyone"
		if d.Identity != "" {
			whose = "identity " + d.Identity[:min(8, len(d.Identity))] + "…"
		}
		fmt.Fprintf(w, "  %s %s %q: %d runs and %d tokens are stored, and should be %d and %d\n", whose, d.Want.Kind, d.Want.Name, d.Stored.Runs, d.Stored.Total, d.Want.Runs, d.Want.Total)
	}
}

func printRebuiltUsage(w io.Writer, result *runusage.Rebuilt, check bool) {
	end := ""
	if !check && result.Different > 0 {
		end = " and are equal now"
	}
	fmt.Fprintf(w, "%-10s %d rows\n%d runs compared, %d days differed%s\n", runusage.Name, result.Rows, result.Runs, result.Different, end)
	if result.Deleted > 0 {
		fmt.Fprintf(w, "%d runs are deleted: what they used stays as it was\n", result.Deleted)
	}
	if result.Behind > 0 {
		fmt.Fprintf(w, "%d runs have ended that a server has yet to add\n", result.Behind)
	}
}
