package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"understudy/internal/config"
)

// every calls visit for each command of understudy.
func every(visit func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		visit(cmd)
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(nil, nil))
}

// The help of every command of ours fits into 100 columns, explains what it does and shows an example.
func TestHelp(t *testing.T) {
	t.Parallel()
	every(func(cmd *cobra.Command) {
		path := strings.Fields(cmd.CommandPath())[1:]
		out, err := execute(t, append(path, "--help")...)
		require.NoError(t, err)
		for line := range strings.Lines(out) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")), helpWidth, "%s: %s", cmd.CommandPath(), line)
		}
		ours := len(path) == 1 && path[0] != "help" && path[0] != "completion" && path[0] != "version"
		if ours {
			require.Contains(t, out, "\nExamples:\n  ", cmd.CommandPath())
			require.NotEqual(t, "more", cmd.GroupID, "%s stands under no heading", cmd.Name())
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) { require.Contains(t, out, "--"+f.Name, cmd.CommandPath()) })
	})
}

// The flags of servers stand under headings, each under one.
func TestFlagGroups(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, g := range config.Groups() {
		known[g] = true
	}
	for _, s := range config.Settings() {
		require.True(t, known[s.Group()], s.Flag)
	}
	out, err := execute(t, "serve", "--help")
	require.NoError(t, err)
	at := 0
	for _, g := range append([]string{"Flags"}, config.Groups()...) {
		i := strings.Index(out, "\n"+g+":\n")
		require.Greater(t, i, at, g)
		at = i
	}
	require.Less(t, strings.Index(out, "--port"), strings.Index(out, "\nStorage:"))
	require.Greater(t, strings.Index(out, "--log-level"), strings.Index(out, "\nLogging:"))
}

func TestShortFlags(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--version"}, {"-v"}} {
		out, err := execute(t, args...)
		require.NoError(t, err)
		require.Equal(t, "understudy "+version()+"\n", out)
	}
	for _, args := range [][]string{{"dev", "-c", "/nowhere.json"}, {"dev", "-p", "x", "-c", "/nowhere.json"}, {"doctor", "-c", "/nowhere.json", "-p", "0"}} {
		out, err := execute(t, args...)
		text := out
		if err != nil {
			text += err.Error()
		}
		require.Contains(t, text, "/nowhere.json", args)
	}
	out, err := execute(t, "completion", "bash")
	require.NoError(t, err)
	require.Contains(t, out, "__start_understudy")
	out, err = execute(t)
	require.NoError(t, err)
	require.Contains(t, out, "completion ")
}

func TestReflow(t *testing.T) {
	t.Parallel()
	require.Equal(t, "one two\nthree\n\n  a list stays as it is\nfour", reflow("one\ntwo three\n\n  a list stays as it is\nfour\n", 8))
}

// What cobra and pflag say of mistakes is no exception: it names the mistake and what to read, in words.
func TestMistakesOfFlags(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		`-port: perhaps --port is meant`:                                                                             {"dev", "-port", "3"},
		`-config: perhaps --config is meant`:                                                                         {"serve", "-config=x.json"},
		`-url: perhaps --url is meant`:                                                                               {"threads", "-url", "http://127.0.0.1:1"},
		`in -eader, perhaps --header is meant`:                                                                       {"chat", "-header", "a: b"},
		`in -data, perhaps --data is meant`:                                                                          {"dev", "-data", "x"},
		`--status "idel" is none of idle, busy, interrupted, error`:                                                  {"threads", "--status", "idel"},
		`understudy completion knows bash, zsh, fish and powershell, not "tcsh"`:                                     {"completion", "tcsh"},
		`invalid argument "x" for "-n, --limit" flag: invalid syntax; see understudy threads --help`:                 {"threads", "--limit", "x"},
		`invalid argument "99999999999999999999" for "-n, --limit" flag: value out of range; see understudy threads`: {"threads", "-n", "99999999999999999999"},
		`unknown flag: --prot, perhaps --port is meant; see understudy dev --help`:                                   {"dev", "--prot", "3"},
		`unknown flag: --worker, perhaps --workers is meant; see understudy dev --help`:                              {"dev", "--worker", "3"},
		`unknown flag: --datadir, perhaps --data is meant; see understudy backup --help`:                             {"backup", "--datadir", "x"},
		`unknown flag: --limits, perhaps --limit is meant; see understudy threads --help`:                            {"threads", "--limits"},
		`unknown flag: --no-reload: here it is --reload=false; see understudy dev --help`:                            {"dev", "--no-reload"},
		`unknown flag: --no-browser: leave it out: no browser is opened; see understudy dev --help`:                  {"dev", "--no-browser"},
		`unknown flag: --no-browser; see understudy threads --help`:                                                  {"threads", "--no-browser"},
		`unknown flag: --xy; see understudy dev --help`:                                                              {"dev", "--xy"},
	} {
		_, err := execute(t, args...)
		require.ErrorContains(t, err, want)
		require.ErrorAs(t, err, new(usageError))
	}
}
