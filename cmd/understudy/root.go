package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"understudy/internal/config"
)

// usageError is a mistake in the command line itself.
type usageError struct{ error }

func newRoot(stdout, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use:   "understudy",
		Short: "Serves LangGraph graphs through the LangGraph Server API",
		Long: `understudy serves the graphs that a langgraph.json names, through the API of LangGraph Server:
unchanged langgraph-sdk clients and useStream frontends work as before.

It is one program. Threads, runs and checkpoints are kept in a SQLite file; Python graphs run
in worker processes that it starts itself, so a graph that misbehaves cannot take it down.`,
		Example: `  understudy dev                            serve ./langgraph.json on http://127.0.0.1:2024
  understudy dev --port 0 --workers 1       on a free port, with one Python process
  understudy serve --host 0.0.0.0           in production, reachable from other machines
  understudy version`,
		SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; see %s --help", err, cmd.CommandPath())}
	})
	root.AddCommand(
		newServer(config.Dev, &cobra.Command{
			Use:   "dev",
			Short: "Serve on this machine while you write graphs",
			Long: `Serves the graphs of langgraph.json on this machine, with readable logs and a short stop.

When it is ready it prints one line, "understudy listening on URL", and what to try next.
Ctrl-C stops it: running runs get --grace to reach a checkpoint, and go on from there when
it is started again. A second Ctrl-C ends it at once; nothing acknowledged is lost.`,
			Example: `  understudy dev
  understudy dev --config my-app/langgraph.json --port 8123
  UNDERSTUDY_PORT=0 understudy dev --data /tmp/try`,
		}),
		newServer(config.Serve, &cobra.Command{
			Use:   "serve",
			Short: "Serve in production",
			Long: `Serves like dev, for production: JSON logs, and three minutes for running runs when it is
told to stop with SIGTERM. What has not ended by then is handed back, and resumes from its
last checkpoint at the next start.`,
			Example: `  understudy serve --host 0.0.0.0 --data /var/lib/understudy
  UNDERSTUDY_HOST=0.0.0.0 UNDERSTUDY_GRACE=30s understudy serve`,
		}),
		&cobra.Command{
			Use: "version", Short: "Print the version", Args: noArgs,
			Run: func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "understudy", version()) },
		},
	)
	return root
}

// newServer completes dev and serve: flags from the table of settings, and what runs.
func newServer(mode config.Mode, cmd *cobra.Command) *cobra.Command {
	cmd.Args = noArgs
	cmd.Flags().SortFlags = false
	file := os.Getenv("UNDERSTUDY_CONFIG")
	if file == "" {
		file = "langgraph.json"
	}
	cmd.Flags().StringVar(&file, "config", file, "`FILE` that names the graphs [$UNDERSTUDY_CONFIG]")
	for _, s := range config.Settings() {
		addFlag(cmd.Flags(), s)
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := map[string]string{}
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if f.Name != "config" {
				given[f.Name] = f.Value.String()
			}
		})
		c, warnings, err := config.Load(config.Source{Mode: mode, File: file, Flags: given})
		if err != nil {
			for _, w := range warnings {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
			return err
		}
		return serve(cmd.Context(), c, warnings, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// addFlag registers a setting. Values stay text: config reads them, so that all mistakes are told together.
func addFlag(flags *pflag.FlagSet, s config.Setting) {
	names := append([]string{s.Env}, s.Also...)
	help := fmt.Sprintf("%s (default %s) [$%s]", s.Help, s.Default, strings.Join(names, ", $"))
	flags.Var(&textValue{kind: s.Value}, s.Flag, help)
	if s.Switch {
		flags.Lookup(s.Flag).NoOptDefVal = "true"
	}
}

// textValue is a flag's text as it was given. kind names it in --help.
type textValue struct{ text, kind string }

func (v *textValue) String() string     { return v.text }
func (v *textValue) Set(s string) error { v.text = s; return nil }
func (v *textValue) Type() string       { return v.kind }

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("%s takes no argument, but got %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())}
}
