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
)

// maxPrinted is how many differing threads are printed.
const maxPrinted = 20

// errDiffer ends rebuild --check when something differs.
var errDiffer = errors.New("stored read models differ from the log: understudy rebuild makes them anew")

func newRebuild() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild [NAME...]",
		Short: "Make the read models of threads anew, and prove them right",
		Long: `Read models are tables made of the logs of threads, for lists that would otherwise search whole logs:
  branches   of which thread a thread is a fork
  heads      where each thread is
  messages   which checkpoint saved a message
  timeline   what happened on all threads

Servers keep them up to date by themselves. This command makes them anew from the logs, thread by thread, compares the result with
what is stored, names threads that differ, replaces their rows, and compares again until both are equal. With --check it only compares; when something differs, the
exit status is 1.

The data folder must have no server; on Postgres servers may run. It may be interrupted, and run again.`,
		Example: `  understudy rebuild --check
  understudy rebuild
  understudy rebuild timeline heads --database-url postgres://me:secret@localhost/understudy`,
		ValidArgs: readmodel.Models(),
	}
	cmd.Flags().SortFlags = false
	load := dataFlags(cmd)
	check := cmd.Flags().Bool("check", false, "only compare")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			if !slices.Contains(readmodel.Models(), name) {
				return misused(cmd, "there is no read model %q, only %s", name, strings.Join(readmodel.Models(), ", "))
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
		r := readmodel.Rebuilding{
			Models: args, Check: *check,
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
		result, err := moving.Rebuild(ctx, cfg, &r, log)
		if result != nil {
			printRebuilt(out, result, differing, *check)
		}
		if err == nil && *check && result.Different > 0 {
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
