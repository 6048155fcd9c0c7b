package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"understudy/internal/app"
	"understudy/internal/app/doctor"
	"understudy/internal/config"
)

// errUnwell ends doctor with exit code 1. What is wrong has been printed.
var errUnwell = errors.New("problems were found")

func newDoctor() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what a server needs, and say how to fix it",
		Long: `Checks the configuration, environment variables, the data folder or the Postgres database, Redis,
the port, Python, each graph, and what auth.path, http.app, store.index.embed and encryption.path
name (imported in processes of their own). With --deerflow also DeerFlow's config.yaml and
extensions_config.json: models with their keys, tools, guards, skills, programs of MCP servers and the
sandbox. It prints what it finds as it finds
it, changes nothing, and may be run while a server runs. Exit code 0: all is well, warnings aside; 1: there are problems.`,
		Example: `  understudy doctor
  understudy doctor --config my-app/langgraph.json --data /var/lib/understudy --json`,
		Args: noArgs,
	}
	cmd.Flags().SortFlags = false
	file := os.Getenv("UNDERSTUDY_CONFIG")
	if file == "" {
		file = "langgraph.json"
	}
	asJSON := false
	cmd.Flags().StringVarP(&file, "config", "c", file, "`FILE` that names the graphs [$UNDERSTUDY_CONFIG]")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON array of findings")
	models := false
	cmd.Flags().BoolVar(&models, "models", false, "call each model of the declared agents once, with a tool and an image where declared")
	for _, s := range config.Settings() {
		if s.Of(config.Serve) {
			addFlag(cmd, s, config.Serve)
		}
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		given := map[string]string{}
		cmd.Flags().Visit(func(f *pflag.Flag) {
			if f.Name != "config" && f.Name != "json" && f.Name != "models" {
				given[f.Name] = f.Value.String()
			}
		})
		out := cmd.OutOrStdout()
		e := doctor.Examination{Source: config.Source{Mode: config.Serve, File: orBuiltIn(file, cmd, given), Flags: given}, Models: models, DeerFlow: app.CheckDeerFlow}
		e.Doing = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what+" …") }
		e.Still = e.Doing
		idle := func() {} // takes the sign away that a terminal shows
		if !asJSON {
			found := findingPrinter(out)
			e.Found = func(f doctor.Finding) {
				idle()
				found(f)
			}
			e.Doing = func(what string) {
				if idle(); isTerminal(out) {
					idle = waitSign(out, what)
					return
				}
				fmt.Fprintf(out, "        %-12s %s …\n", "", what)
			}
			e.Still = e.Doing
		}
		findings := doctor.Examine(cmd.Context(), e)
		idle()
		if asJSON {
			enc := json.NewEncoder(out)
			enc.SetIndent("", "  ")
			enc.SetEscapeHTML(false)
			if err := enc.Encode(findings); err != nil {
				return err
			}
		} else {
			printSum(out, findings)
		}
		for _, f := range findings {
			if f.Verdict == doctor.Problem {
				return errUnwell
			}
		}
		return nil
	}
	return cmd
}

// findingPrinter writes findings for a person, each when it is found: with signs on a terminal, in words elsewhere.
func findingPrinter(w io.Writer) func(doctor.Finding) {
	signs := map[doctor.Verdict]string{doctor.Fine: "ok      ", doctor.Warning: "warning ", doctor.Problem: "PROBLEM "}
	indent := "        "
	if isTerminal(w) {
		signs = map[doctor.Verdict]string{doctor.Fine: "\x1b[32m✓\x1b[0m ", doctor.Warning: "\x1b[33m!\x1b[0m ", doctor.Problem: "\x1b[31m✗\x1b[0m "}
		indent = "  "
	}
	return func(f doctor.Finding) {
		fmt.Fprintf(w, "%s%-12s %s\n", signs[f.Verdict], f.Check, f.Text)
		for _, line := range f.Details {
			fmt.Fprintf(w, "%s%-12s   %s\n", indent, "", line)
		}
		if f.Fix != "" {
			fmt.Fprintf(w, "%s%-12s → %s\n", indent, "", f.Fix)
		}
	}
}

// aScreen is how many findings a terminal shows, roughly.
const aScreen = 12

// printSum says how many problems there are, and names them again when they may be far above.
func printSum(w io.Writer, findings []doctor.Finding) {
	problems := slices.DeleteFunc(slices.Clone(findings), func(f doctor.Finding) bool { return f.Verdict != doctor.Problem })
	warned := slices.ContainsFunc(findings, func(f doctor.Finding) bool { return f.Verdict == doctor.Warning })
	switch len(problems) {
	case 0:
		if warned {
			fmt.Fprintln(w, "\nNo problems; see the warnings.")
		} else {
			fmt.Fprintln(w, "\nAll is well.")
		}
		return
	case 1:
		fmt.Fprint(w, "\n1 problem")
	default:
		fmt.Fprintf(w, "\n%d problems", len(problems))
	}
	if len(findings) <= aScreen {
		fmt.Fprintln(w, ".")
		return
	}
	fmt.Fprintln(w, ":")
	for _, f := range problems {
		fmt.Fprintf(w, "  %-12s %s\n", f.Check, f.Text)
	}
}
