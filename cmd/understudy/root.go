package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"understudy/internal/config"
)

// usageError is a mistake in the command line itself.
type usageError struct{ error }

func printVersion(cmd *cobra.Command) error {
	_, err := fmt.Fprintln(cmd.OutOrStdout(), "understudy", version())
	return err
}

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
  understudy worker                         executes runs of a shared database, without serving
  understudy proxy --upstream URL           in front of a LangGraph Server that stays
  understudy version`,
		SilenceUsage: true, SilenceErrors: true,
	}
	// Not cobra's Version: what it prints is a template, and those make the program a fifth larger (see internal/docsite).
	showVersion := root.Flags().BoolP("version", "v", false, "print the version")
	root.SetUsageFunc(usage)
	root.SetHelpFunc(help)
	for _, g := range commandGroups {
		root.AddGroup(&cobra.Group{ID: g.id, Title: g.title})
	}
	// With a RunE cobra leaves it to us what is said of an unknown command.
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		meant := ""
		near := slices.DeleteFunc(cmd.SuggestionsFor(args[0]), func(name string) bool { return !plausible(cmd, name, args[0]) })
		if len(near) > 0 {
			meant = fmt.Sprintf(", perhaps %s is meant", strings.Join(near, " or "))
		}
		return usageError{fmt.Errorf("unknown command %q%s; see %s --help", args[0], meant, cmd.CommandPath())}
	}
	root.RunE = func(cmd *cobra.Command, _ []string) error {
		if *showVersion {
			return printVersion(cmd)
		}
		return cmd.Help()
	}
	root.SuggestionsMinimumDistance, root.DisableFlagsInUseLine = 2, true
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if cmd == root && cmd.Flags().NArg() > 0 {
			return root.Args(cmd, cmd.Flags().Args()) // the flag was for a command that is misspelt
		}
		return usageError{fmt.Errorf("%s%s; see %s --help", ofStrconv.ReplaceAllString(err.Error(), ""), meantFlag(cmd, err.Error()), cmd.CommandPath())}
	})
	defer refuseSingleDash(root)
	root.AddCommand(
		newServer(config.Dev, &cobra.Command{
			Use:        "dev",
			SuggestFor: []string{"start", "up", "run"},
			Short:      "Serve on this machine while you write graphs",
			Long: `Serves the graphs of langgraph.json on this machine, with readable logs and a short stop.

When it listens it prints one line, "understudy listening on URL", then each graph that is loaded, and
what to try next.
When a file of a graph changes, the graphs are loaded again; running runs finish on the old code.
--reload=false turns that off.
Ctrl-C stops it: running runs get --grace to reach a checkpoint, and resume from there at the
next start. A second Ctrl-C ends it at once; nothing acknowledged is lost.`,
			Example: `  understudy dev
  understudy dev -c my-app/langgraph.json -p 8123
  UNDERSTUDY_PORT=0 understudy dev --data /tmp/try`,
		}),
		newServer(config.Serve, &cobra.Command{
			Use:   "serve",
			Short: "Serve in production",
			Long: `Serves like dev, for production: JSON logs, and three minutes for running runs to end after SIGTERM.
The rest returns to the queue, and resumes from its last checkpoint at the next start, or at once on
another server of the same --database-url.

With --concurrency 0 it only serves, and "understudy worker" executes the runs.`,
			Example: `  understudy serve --host 0.0.0.0 --data /var/lib/understudy
  understudy serve --host 0.0.0.0 --database-url postgres://u@db/app --redis-url redis://cache:6379
  UNDERSTUDY_HOST=0.0.0.0 UNDERSTUDY_GRACE=30s understudy serve`,
		}),
		newServer(config.Worker, &cobra.Command{
			Use:   "worker",
			Short: "Execute runs of a database that others serve",
			Long: `Executes runs and serves nothing: it claims what servers on the same Postgres database have put
into the queue. Start as many as there is work for, on any machine that reaches the database, with the
langgraph.json of the servers. One executes up to --concurrency runs at once, and of single graphs
up to --graph-concurrency; what it has no place for, another claims.

Servers execute runs too, unless they start with --concurrency 0 or N_JOBS_PER_WORKER=0. --redis-url carries what graphs stream from here to the servers that show it;
without it they show how a run ended.

--health-port serves /livez, /readyz and /metrics.

SIGTERM drains: nothing more is claimed, running runs get --grace, and what has not ended by then
goes back into the queue, where another takes it at once, from its last checkpoint. A second signal
ends it at once; others find out when its leases end, after 20 s or so.`,
			Example: `  understudy worker --database-url postgres://u@db/app --redis-url redis://cache:6379
  DATABASE_URI=postgres://u@db/app REDIS_URI=redis://cache:6379 understudy worker --concurrency 40
  understudy worker --graph-concurrency researcher=2,chat=20 --grace 10m`,
		}),
		newServer(config.Proxy, &cobra.Command{
			Use:   "proxy",
			Short: "Run in front of a LangGraph Server and restore full message history",
			Long: `Runs in front of a LangGraph Server: clients change only their URL. Every request is forwarded
unchanged, with the caller's credentials; where the server has only a summary left, the messages that
users saw are put back into its responses. Conversations that began before the proxy are recovered from
the checkpoints that the server still has, when they are first read.

What passes is recorded below DIR/upstreams, by the name of the upstream, or else its address; with
--database-url in a schema of a Postgres database, for any number of proxies. A
caller sees a recording only if the upstream has just let the same caller see the thread. With the
upstream down every call is answered with 502 and says so, recorded messages included.

--offline-reads is for upstreams that demand no credentials: then GET /threads/{id}/messages and
/events answer from what was recorded while the upstream is down. It does not start on an upstream that
refuses an anonymous caller. Who may see what cannot be asked of a server that is away, so callers
that send anything that could be credentials are refused until it is back; and on an upstream that
is down at the start nothing is shown, unless it was seen open before with the same --data.

Of langgraph.json, if one is named, the sections history and http.cors are read. Health and
metrics of the proxy itself are at /understudy/ok, /understudy/livez, /understudy/readyz and /understudy/metrics.`,
			Example: `  understudy proxy --upstream http://127.0.0.1:2024
  understudy proxy --upstream https://my-app.example.com --name my-app --host 0.0.0.0 --port 8123
  understudy proxy --upstream http://10.0.0.5:8000/agents -c langgraph.json --data /var/lib/us
  UNDERSTUDY_UPSTREAM=http://127.0.0.1:2024 understudy proxy --port 0 --offline-reads`,
		}),
		newChat(), newThreads(), newRuns(), newState(), newLogs(),
		newImport(),
		newExport(),
		newBackup(), newRestore(), newEncrypt(), newRebuild(), newKeys(), newAudit(),
		newInit(),
		newDoctor(), newHealth(),
		&cobra.Command{
			Use: "version", Short: "Print the version", Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return printVersion(cmd) },
		},
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" { // cobra's own would print its help for a shell that it does not know, and succeed
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				if len(args) > 0 {
					return misused(cmd, "knows bash, zsh, fish and powershell, not %q", args[0])
				}
				return nil
			}
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		cmd.GroupID = groupOf(cmd.Name())
	}
	return root
}

// elsewhere are flags of langgraph dev and langgraph up that have other names here, or none.
var elsewhere = map[string]string{
	"no-reload":         "here it is --reload=false",
	"n-jobs-per-worker": "here it is --jobs-per-worker",
	"server-log-level":  "here it is --log-level",
	"postgres-uri":      "here it is --database-url",
	"no-browser":        "leave it out: no browser is opened",
	"allow-blocking":    "leave it out: blocking calls are reported, and allowed",
	"studio-url":        "leave it out: the pages of the studio are in the server, see --studio",
	"tunnel":            "leave it out; for a tunnel of your own see --allowed-hosts",
	"debug-port":        "leave it out: graphs run in processes of their own, in which breakpoint() does not stop",
	"wait-for-client":   "leave it out: graphs run in processes of their own, in which breakpoint() does not stop",
	"watch":             "leave it out: dev reloads when files change",
}

// oneDash is what pflag says of -data, whose letters it takes for flags.
var oneDash = regexp.MustCompile(`^unknown shorthand flag: '.' in -([\w-]{3,})`)

var unknownFlag = regexp.MustCompile(`^unknown flag: --([\w-]+)`)

// meantFlag says which flag may be meant by one that a command does not have, as the error of pflag names it; "" for none.
func meantFlag(cmd *cobra.Command, message string) string {
	best, least := "", 3
	if m := oneDash.FindStringSubmatch(message); m != nil { // without the letters that are flags
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			if strings.HasSuffix(f.Name, m[1]) {
				best = ", perhaps --" + f.Name + " is meant"
			}
		})
		return best
	}
	m := unknownFlag.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		d := levenshtein.ComputeDistance(m[1], f.Name)
		if len(m[1]) > 2 && (strings.HasPrefix(f.Name, m[1]) || len(f.Name) > 3 && strings.HasPrefix(m[1], f.Name)) {
			d = 1
		}
		if d < least && d < len(m[1]) {
			best, least = f.Name, d
		}
	})
	if best != "" {
		return ", perhaps --" + best + " is meant"
	}
	if here := elsewhere[m[1]]; here != "" && cmd.Flags().Lookup("log-level") != nil {
		return ": " + here
	}
	return ""
}

// ofStrconv is what pflag passes on about a number that is none, besides the reason.
var ofStrconv = regexp.MustCompile(`strconv\.\w+: parsing "[^"]*": `)

// newServer completes dev, serve, worker and proxy: flags from the table of settings, and what runs.
func newServer(mode config.Mode, cmd *cobra.Command) *cobra.Command {
	cmd.Args = noArgs
	cmd.Flags().SortFlags = false
	file := os.Getenv("UNDERSTUDY_CONFIG")
	help := "`FILE` that names the graphs [$UNDERSTUDY_CONFIG]"
	switch {
	case mode == config.Proxy:
		help = "langgraph.json `FILE` whose sections history and http.cors are read (default none) [$UNDERSTUDY_CONFIG]"
	case file == "":
		file = "langgraph.json"
	}
	cmd.Flags().StringVarP(&file, "config", "c", file, help)
	for _, s := range config.Settings() {
		if s.Of(mode) {
			addFlag(cmd, s, mode)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := map[string]string{}
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if f.Name != "config" {
				given[f.Name] = f.Value.String()
			}
		})
		source := config.Source{Mode: mode, File: orBuiltIn(file, cmd, given), Flags: given}
		c, warnings, err := config.Load(source)
		warnings = append(warnings, c.WarnOfVariables(os.Environ())...)
		log := newLog(c, cmd.ErrOrStderr())
		for _, w := range warnings {
			if err == nil || c.Logging.JSON {
				log.Warn("configuration", "key", w.Key, "problem", w.Text)
			} else {
				fmt.Fprintln(cmd.ErrOrStderr(), "warning:", w)
			}
		}
		if err == nil {
			err = serve(cmd.Context(), c, source, log, cmd.OutOrStdout())
		}
		if err != nil && c.Logging.JSON {
			logFailure(err, log)
			return loggedError{err}
		}
		return err
	}
	return cmd
}

// orBuiltIn returns the file with the graphs; "" when there is none and DeerFlow's agent, which is built in, is served.
func orBuiltIn(file string, cmd *cobra.Command, given map[string]string) string {
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) && !cmd.Flags().Changed("config") && (given["deerflow"] != "" || os.Getenv("UNDERSTUDY_DEERFLOW") != "") {
		return ""
	}
	return file
}

// addFlag registers a setting. Values stay text: config parses them, so that all errors are reported together.
func addFlag(cmd *cobra.Command, s config.Setting, mode config.Mode) {
	flags := cmd.Flags()
	names := append([]string{s.Env}, s.AlsoIn(mode)...)
	help := fmt.Sprintf("%s (default %s) [$%s]", s.Help, s.DefaultIn(mode), strings.Join(names, ", $"))
	flags.VarP(&textValue{kind: s.Value}, s.Flag, s.Short, help)
	if err := flags.SetAnnotation(s.Flag, groupAnnotation, []string{s.Group()}); err != nil {
		panic(err) // the flag is there
	}
	if s.Alone != "" {
		flags.Lookup(s.Flag).NoOptDefVal = s.Alone
	}
	values := s.Values
	if s.Switch {
		flags.Lookup(s.Flag).NoOptDefVal = "true"
		values = []string{"true", "false"}
	}
	switch s.Value {
	case "FILE", "PATH", "DIR": // files, as a shell completes what it knows nothing of
	default:
		complete(cmd, s.Flag, values)
	}
}

// textValue is a flag's text as it was given. kind names it in --help.
type textValue struct{ text, kind string }

func (v *textValue) String() string     { return v.text }
func (v *textValue) Set(s string) error { v.text = s; return nil }
func (v *textValue) Type() string       { return v.kind }

// refuseSingleDash has commands refuse -port, which is the flag -p with the value ort, where --port exists.
func refuseSingleDash(cmd *cobra.Command) {
	for _, sub := range cmd.Commands() {
		refuseSingleDash(sub)
	}
	inner := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) (err error) {
		cmd.Flags().Visit(func(f *pflag.Flag) {
			name, _, _ := strings.Cut(f.Shorthand+strings.Trim(f.Value.String(), "[]"), "=")
			if f.Shorthand != "" && cmd.Flags().Lookup(name) != nil {
				err = usageError{fmt.Errorf("-%s: perhaps --%s is meant: one dash is for flags of one letter; see %s --help", name, name, cmd.CommandPath())}
			}
		})
		if err != nil || inner == nil {
			return err
		}
		return inner(cmd, args)
	}
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var alone string // a flag that was given without its value, which has to follow with =
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.NoOptDefVal != "true" && f.Value.String() == f.NoOptDefVal {
			alone = f.Name
		}
	})
	if alone != "" {
		return misused(cmd, "takes no argument, but got %[1]q; write --%[2]s=%[1]s", args[0], alone)
	}
	return misused(cmd, "takes no argument, but got %q", args[0])
}

// misused is a mistake in the arguments of a command, with its usage.
func misused(cmd *cobra.Command, format string, args ...any) error {
	path := cmd.CommandPath()
	return usageError{fmt.Errorf("%s %s; usage: %s, see %s --help", path, fmt.Sprintf(format, args...), strings.TrimSuffix(cmd.UseLine(), " [flags]"), path)}
}

// plausible reports whether a command was meant by what was typed: cobra also suggests short names in which two of four letters differ.
func plausible(root *cobra.Command, name, typed string) bool {
	for _, cmd := range root.Commands() {
		if cmd.Name() == name && slices.Contains(cmd.SuggestFor, typed) {
			return true
		}
	}
	distance := levenshtein.ComputeDistance(name, typed)
	return distance <= 1 || strings.HasPrefix(name, typed) || name[0] == typed[0] && 2*distance <= len(typed)
}
