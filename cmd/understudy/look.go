package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
)

// lookCommand makes a command that shows something of a running server: as a table, or the answer as it is with --json.
func lookCommand(cmd *cobra.Command, ask func(ctx context.Context, api *client, args []string) (json.RawMessage, error),
	show func(api *client, out io.Writer, p palette, answer json.RawMessage),
) *cobra.Command {
	cmd.Flags().SortFlags = false
	server := serverFlags(cmd)
	asJSON := false
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		api, err := server()
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), commandTimeout)
		defer cancel()
		out := cmd.OutOrStdout()
		asking := waitSignWhy(ctx, cmd.ErrOrStderr(), always("asking "+api.base), func(ctx context.Context) string { return api.whyWait(ctx, waited{}) })
		answer, err := ask(ctx, api, args)
		asking.end()
		if err != nil {
			return err
		}
		if asJSON {
			fmt.Fprintln(out, indented(string(answer)))
			return nil
		}
		show(api, out, colorsOf(out), answer)
		return nil
	}
	return cmd
}

// needArgs refuses other numbers of arguments, and says which are needed.
func needArgs(least, most int, names string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && len(args) <= most {
			return nil
		}
		return misused(cmd, "needs %s, and got %d arguments", names, len(args))
	}
}

// table writes rows in columns, the first as a heading.
func table(out io.Writer, rows [][]string) {
	w := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(w, strings.Join(row, "\t"))
	}
	_ = w.Flush() // a closed output
}

// ago says how long ago a time of the API was.
func ago(text string, now time.Time) string {
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return text
	}
	switch d := now.Sub(at); {
	case d < time.Minute:
		return fmt.Sprintf("%ds ago", max(0, int(d.Seconds())))
	case d < time.Hour:
		return fmt.Sprintf("%dm ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh ago", int(d.Hours()))
	}
	return at.Local().Format("2006-01-02 15:04")
}

// orNone stands for an empty cell.
func orNone(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// mostRows is the most that a server lists at once.
const mostRows = 1000

// checkLimit refuses a --limit that servers refuse.
func checkLimit(limit int) error {
	if limit < 1 || limit > mostRows {
		return usageError{fmt.Errorf("--limit is 1 to %d", mostRows)}
	}
	return nil
}

// noteMore says that a list may have ended at its limit. errs is standard error, because the list may be read by a program.
func noteMore(errs io.Writer, shown, limit int, narrower string) {
	if shown == limit {
		fmt.Fprintf(errs, "the first %d; there may be more: --limit shows up to %d%s\n", shown, mostRows, narrower)
	}
}
